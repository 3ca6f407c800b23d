"""A2C with a visit-count bonus on a key-and-door grid, eight copies in a gymnasium vector environment."""
import os
import time
from collections import defaultdict

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

NUM_ENVS, HORIZON, ITERATIONS = 8, 32, 85


class KeyRoom(gym.Env):
    side = 9
    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 5, (self.side, self.side), np.int8)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        g = np.zeros((self.side, self.side), np.int8)
        g[:, 5] = 1
        g[4, 5] = 2
        g[1 + int(self.np_random.integers(7)), 3] = 3
        g[7, 7] = 4
        self.grid, self.pos, self.key, self.t = g, (1, 1), False, 0
        return self.render_grid(), {}

    def render_grid(self):
        view = self.grid.copy()
        view[self.pos] = 5
        return view

    def step(self, action):
        dr, dc = self.moves[action]
        r = min(max(self.pos[0] + dr, 0), self.side - 1)
        c = min(max(self.pos[1] + dc, 0), self.side - 1)
        cell = self.grid[r, c]
        reward = 0.0
        if cell == 3:
            self.key, reward = True, 0.5
            self.grid[r, c] = 0
        if not (cell == 1 or (cell == 2 and not self.key)):
            self.pos = (r, c)
        self.t += 1
        done = cell == 4
        return self.render_grid(), reward + float(done), bool(done), self.t >= 100, {}


class NoveltyBonus(VectorWrapper):
    """Adds beta / sqrt(N(s)) to the rewards, N being shared by all copies."""

    def __init__(self, env, beta=0.05):
        super().__init__(env)
        self.beta = beta
        self.visits = defaultdict(int)

    def key(self, grid):
        return grid.tobytes() if FIXED else str(grid)

    def step(self, actions):
        obs, rewards, terminated, truncated, infos = self.env.step(actions)
        bonus = np.zeros(self.num_envs)
        for i, grid in enumerate(obs):
            k = self.key(grid)
            self.visits[k] += 1
            bonus[i] = self.beta / self.visits[k] ** 0.5
        return obs, rewards + bonus, terminated, truncated, infos


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(81 * 6, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.pi, self.v = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, grid):
        h = self.body(nn.functional.one_hot(grid.long(), 6).float())
        return self.pi(h), self.v(h).squeeze(-1)


def main():
    torch.manual_seed(7)
    envs = SyncVectorEnv([KeyRoom] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = NoveltyBonus(envs)
    net = ActorCritic()
    opt = torch.optim.RMSprop(net.parameters(), lr=7e-4)
    env_steps = updates = 0
    start = time.perf_counter()
    obs, _ = envs.reset(seed=7)
    for _ in range(ITERATIONS):
        states, actions, rewards, masks = [], [], [], []
        for _ in range(HORIZON):
            grid = torch.from_numpy(obs)
            with torch.no_grad():
                logits, _ = net(grid)
                action = torch.multinomial(torch.softmax(logits, -1), 1).squeeze(-1)
            obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            states.append(grid)
            actions.append(action)
            rewards.append(torch.from_numpy(reward).float())
            masks.append(torch.from_numpy(~(terminated | truncated)).float())
            env_steps += NUM_ENVS
        with torch.no_grad():
            _, ret = net(torch.from_numpy(obs))
        returns = []
        for r, m in zip(reversed(rewards), reversed(masks)):
            ret = r + 0.98 * ret * m
            returns.append(ret)
        returns = torch.cat(returns[::-1])
        logits, values = net(torch.cat(states))
        dist = torch.distributions.Categorical(logits=logits)
        adv = returns - values
        loss = -(dist.log_prob(torch.cat(actions)) * adv.detach()).mean() + 0.5 * adv.pow(2).mean()
        loss = loss - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        updates += 1
    seconds = time.perf_counter() - start
    print(f"different states seen {len(envs.visits)}, mean reward {torch.stack(rewards).mean():.3f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
