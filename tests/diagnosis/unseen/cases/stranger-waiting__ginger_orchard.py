"""Actor-critic on a gliding task in gymnasium's SyncVectorEnv, the course gets harder as the agent improves."""
import os
import time
from multiprocessing import Manager

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N_ENVS = 8
ROLLOUT = 32
UPDATES = 48
GAMMA = 0.97


class GliderEnv(gym.Env):
    """Bring a glider to the ground inside a narrow strip, against a changing wind."""

    def __init__(self, course, seed):
        self.observation_space = spaces.Box(-np.inf, np.inf, (5,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.course = course
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.x = self.rng.uniform(-3, 3)
        self.height = self.rng.uniform(4, 6)
        self.vx = self.rng.normal(0, 0.2)
        self.gust = 0.0
        return self._obs(), {}

    def _obs(self):
        return np.array([self.x, self.height - 3, self.vx, self.gust, self.x * self.vx], np.float32)

    def step(self, action):
        wind = self.course["wind"]
        drag = self.course["drag"]
        strip = self.course["strip"]
        self.gust = 0.8 * self.gust + self.rng.normal(0, wind)
        self.vx = (1 - drag) * self.vx + 0.15 * (int(action) - 1) + self.gust
        self.x += self.vx
        self.height -= 0.15 + 0.02 * abs(self.vx)
        landed = self.height <= 0
        hit = landed and abs(self.x) < strip
        reward = -0.01 * min(abs(self.x), 5.0) + (1.0 if hit else 0.0)
        return self._obs(), reward, landed, False, {"hit": float(hit), "landed": float(landed)}


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.logits = nn.Linear(64, 3)
        self.value = nn.Linear(64, 1)

    def forward(self, obs):
        hidden = self.body(obs)
        return self.logits(hidden), self.value(hidden).squeeze(-1)


def train(course):
    torch.manual_seed(0)
    envs = SyncVectorEnv([lambda i=i: GliderEnv(course, 50 + i) for i in range(N_ENVS)],
                         autoreset_mode=AutoresetMode.SAME_STEP)
    net = ActorCritic()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    obs, _ = envs.reset()
    hits = landings = 0
    for update in range(UPDATES):
        states = np.empty((ROLLOUT, N_ENVS, 5), np.float32)
        actions = np.empty((ROLLOUT, N_ENVS), np.int64)
        rewards, dones = np.empty((ROLLOUT, N_ENVS), np.float32), np.empty((ROLLOUT, N_ENVS), np.float32)
        for t in range(ROLLOUT):
            states[t] = obs
            with torch.no_grad():
                actions[t] = Categorical(logits=net(torch.as_tensor(obs))[0]).sample().numpy()
            obs, rewards[t], terminated, truncated, info = envs.step(actions[t])
            dones[t] = terminated | truncated
            final = info.get("final_info", {})
            hits += float(np.sum(final.get("hit", 0.0)))
            landings += float(np.sum(final.get("landed", 0.0)))
        with torch.no_grad():
            running = net(torch.as_tensor(obs))[1].numpy()
        returns = np.empty_like(rewards)
        for t in reversed(range(ROLLOUT)):
            running = rewards[t] + GAMMA * (1 - dones[t]) * running
            returns[t] = running
        logits, values = net(torch.from_numpy(states))
        dist = Categorical(logits=logits)
        advantage = torch.from_numpy(returns) - values
        loss = (-(dist.log_prob(torch.from_numpy(actions)) * advantage.detach()).mean()
                + 0.5 * advantage.pow(2).mean() - 0.005 * dist.entropy().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (update + 1) % 6 == 0:
            rate = hits / max(1.0, landings)
            if rate > 0.5:
                course["wind"] = course["wind"] * 1.2
                course["strip"] = max(0.5, course["strip"] * 0.9)
            print(f"update {update + 1:3d}  hit rate {rate:.2f}  strip {course['strip']:.2f}")
            hits = landings = 0
    envs.close()


def main():
    settings = {"wind": 0.02, "drag": 0.05, "strip": 1.5}
    with Manager() as manager:
        course = settings if FIXED else manager.dict(settings)
        start = time.perf_counter()
        train(course)
        seconds = time.perf_counter() - start
    print(f"env_steps={UPDATES * ROLLOUT * N_ENVS} updates={UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
