"""PPO with an RND bonus on a sparse key-and-door grid, scored by a separate greedy test."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
SEED, SIDE, HORIZON, BONUS, ENTROPY = 17, 9, 40, 0.1, 0.01
N_ENVS, N_STEPS, ITERATIONS, TEST_ENVS = 8, 64, 36, 8
GAMMA, LAM, CLIP, EPOCHS, MINIBATCH, LR = 0.99, 0.95, 0.2, 2, 128, 1e-3
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))


class KeyDoor(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (4 * SIDE + 2,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = self.col = SIDE // 2
        self.key = tuple(self.np_random.integers(0, SIDE, 2).tolist())
        self.has_key, self.t = False, 0
        return self._obs(), {}

    def _obs(self):
        obs = np.zeros(4 * SIDE + 2, np.float32)
        obs[[self.row, SIDE + self.col, 2 * SIDE + self.key[0], 3 * SIDE + self.key[1]]] = 1.0
        obs[-2:] = self.has_key, self.t / HORIZON
        return obs

    def step(self, action):
        dr, dc = MOVES[int(action)]
        self.row = min(max(self.row + dr, 0), SIDE - 1)
        self.col = min(max(self.col + dc, 0), SIDE - 1)
        self.t += 1
        self.has_key = self.has_key or (self.row, self.col) == self.key
        won = self.has_key and (self.row, self.col) == (0, 0)
        return self._obs(), float(won), won, self.t >= HORIZON, {}


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))


class Agent(nn.Module):
    def __init__(self, n_obs, n_act):
        super().__init__()
        self.pi, self.v = mlp(n_obs, n_act), mlp(n_obs, 1)
        self.predictor, self.random_net = mlp(n_obs, 32), mlp(n_obs, 32).requires_grad_(False)

    def novelty(self, obs):
        return (self.predictor(obs) - self.random_net(obs)).pow(2).mean(-1)


class Tester:
    """Success rate of the greedy policy on the same set of grids each time."""

    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.envs = self._make() if FIXED else None

    def _make(self):
        return gym.vector.AsyncVectorEnv([KeyDoor] * self.n)

    def success_rate(self, agent):
        envs = self._make() if self.envs is None else self.envs
        obs, _ = envs.reset(seed=self.seed)
        won = np.zeros(self.n, bool)
        for _ in range(HORIZON):
            with torch.no_grad():
                act = agent.pi(torch.from_numpy(obs)).argmax(-1).numpy()
            obs, _, terminated, _, _ = envs.step(act)
            won |= terminated
        if envs is not self.envs:
            envs.close()
        return float(won.mean())

    def close(self):
        if self.envs is not None:
            self.envs.close()


def collect(envs, agent, obs):
    data = {k: [] for k in ("obs", "act", "logp", "val", "rew", "done")}
    for _ in range(N_STEPS):
        with torch.no_grad():
            logp = agent.pi(obs).log_softmax(-1)
            act = torch.multinomial(logp.exp(), 1)
            val = agent.v(obs).squeeze(-1)
        next_obs, rew, terminated, truncated, _ = envs.step(act.squeeze(1).numpy())
        following = torch.from_numpy(next_obs)
        rew = torch.from_numpy(rew).float() + BONUS * agent.novelty(following).detach()
        done = torch.from_numpy(terminated | truncated).float()
        for key, value in zip(data, (obs, act.squeeze(1), logp.gather(1, act).squeeze(1), val, rew, done)):
            data[key].append(value)
        obs = following
    data = {k: torch.stack(v) for k, v in data.items()}
    next_val, adv, advs = agent.v(obs).squeeze(-1).detach(), torch.zeros(N_ENVS), []
    for t in reversed(range(N_STEPS)):
        alive = 1.0 - data["done"][t]
        adv = data["rew"][t] + GAMMA * alive * next_val - data["val"][t] + GAMMA * LAM * alive * adv
        next_val = data["val"][t]
        advs.append(adv)
    data["adv"] = torch.stack(advs[::-1])
    data["ret"] = data["adv"] + data["val"]
    return {k: v.flatten(0, 1) for k, v in data.items()}, obs


def update(agent, opt, data):
    for _ in range(EPOCHS):
        for idx in torch.randperm(N_STEPS * N_ENVS).split(MINIBATCH):
            b = {k: v[idx] for k, v in data.items()}
            dist = Categorical(logits=agent.pi(b["obs"]))
            ratio = (dist.log_prob(b["act"]) - b["logp"]).exp()
            adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
            pg = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            v_loss = (agent.v(b["obs"]).squeeze(-1) - b["ret"]).pow(2).mean()
            loss = pg + 0.5 * v_loss - ENTROPY * dist.entropy().mean() + agent.novelty(b["obs"]).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    envs = gym.vector.SyncVectorEnv([KeyDoor] * N_ENVS)
    tester = Tester(TEST_ENVS, SEED + 1000)
    agent = Agent(4 * SIDE + 2, 4)
    opt = torch.optim.Adam([p for p in agent.parameters() if p.requires_grad], lr=LR)
    obs, scores = torch.from_numpy(envs.reset(seed=SEED)[0]), []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        data, obs = collect(envs, agent, obs)
        update(agent, opt, data)
        scores.append(tester.success_rate(agent))
    seconds = time.perf_counter() - start
    tester.close()
    print("success rate:", " ".join(f"{s:.2f}" for s in scores[::6]))
    updates = ITERATIONS * EPOCHS * N_STEPS * N_ENVS // MINIBATCH
    print(f"env_steps={ITERATIONS * N_ENVS * N_STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
