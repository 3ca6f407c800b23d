"""DQN that steers a batch of drifting lanterns through a windy alley."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    envs: int = 32
    vector_steps: int = 2000
    warm_up: int = 100
    batch: int = 256
    capacity: int = 50_000
    gamma: float = 0.98
    lr: float = 3e-4
    sync_every: int = 250
    seed: int = 6


class LanternAlley:
    """All lanterns live in arrays; gusts push them, five thrusts push back."""

    THRUST = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float32)

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.pos = self.rng.uniform(-0.5, 0.5, (n, 2)).astype(np.float32)
        self.vel = np.zeros((n, 2), np.float32)
        self.wind = np.zeros((n, 2), np.float32)
        self.age = np.zeros(n, np.int64)

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.wind, np.abs(self.pos)], axis=1)

    def step(self, action):
        self.wind = 0.95 * self.wind + 0.1 * self.rng.standard_normal((self.n, 2), dtype=np.float32)
        self.vel = 0.9 * self.vel + 0.05 * (self.THRUST[action] + self.wind)
        self.pos = self.pos + 0.2 * self.vel
        self.age += 1
        crashed = np.abs(self.pos).max(axis=1) > 1.0
        over = crashed | (self.age >= 300)
        reward = 0.1 - 0.1 * np.abs(self.pos).sum(axis=1) - crashed
        nxt = self.observe()
        k = int(over.sum())
        if k:
            self.pos[over] = self.rng.uniform(-0.5, 0.5, (k, 2))
            self.vel[over] = self.wind[over] = 0.0
            self.age[over] = 0
        return nxt, reward.astype(np.float32), crashed.astype(np.float32)


class Replay:
    def __init__(self, capacity, dim):
        self.capacity, self.n, self.at = capacity, 0, 0
        self.obs = np.zeros((capacity, dim), np.float32)
        self.nxt = np.zeros((capacity, dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.end = np.zeros(capacity, np.float32)

    def add(self, obs, act, rew, nxt, end):
        where = np.arange(self.at, self.at + len(act)) % self.capacity
        self.obs[where], self.nxt[where] = obs, nxt
        self.act[where], self.rew[where], self.end[where] = act, rew, end
        self.at = (self.at + len(act)) % self.capacity
        self.n = min(self.capacity, self.n + len(act))

    def sample(self, rng, size):
        i = rng.integers(self.n, size=size)
        return tuple(torch.from_numpy(x[i]) for x in (self.obs, self.act, self.rew, self.nxt, self.end))


def make_net():
    return nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    env, replay = LanternAlley(cfg.envs, cfg.seed + 1), Replay(cfg.capacity, 8)
    q, target = make_net(), make_net()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=cfg.lr, fused=True)
    updates = 0
    start = time.perf_counter()
    for t in range(cfg.vector_steps):
        obs = env.observe()
        with torch.inference_mode():
            act = q(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(cfg.envs) < max(0.05, 1.0 - t / 1200)
        act = np.where(explore, rng.integers(5, size=cfg.envs), act)
        nxt, rew, end = env.step(act)
        replay.add(obs, act, rew, nxt, end)
        if t < cfg.warm_up:
            continue
        o, a, r, n, d = replay.sample(rng, cfg.batch)
        with torch.no_grad():
            goal = r + cfg.gamma * (1 - d) * target(n).amax(1)
        loss = F.smooth_l1_loss(q(o).gather(1, a[:, None])[:, 0], goal)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        updates += 1
        if updates % cfg.sync_every == 0:
            target.load_state_dict(q.state_dict())
    seconds = time.perf_counter() - start
    print(f"env_steps={cfg.envs * cfg.vector_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main(Config())
