"""Soft actor-critic with a small committee of critics on a point-mass task."""
import copy
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    seed: int = 11
    steps: int = 480
    batch: int = 48
    critics: int = 8


class PointMass:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.s = self.rng.uniform(-1, 1, 6).astype(np.float32)
        return self.s.copy()

    def step(self, a):
        self.s[2:4] = 0.95 * self.s[2:4] + 0.1 * a
        self.s[:2] += 0.1 * self.s[2:4]
        gap = self.s[:2] - self.s[4:]
        return self.s.copy(), -float(gap @ gap)


class Replay:
    def __init__(self, size):
        self.s, self.s2 = np.zeros((size, 6), np.float32), np.zeros((size, 6), np.float32)
        self.a, self.r = np.zeros((size, 2), np.float32), np.zeros(size, np.float32)
        self.n = 0

    def add(self, s, a, r, s2):
        self.s[self.n], self.a[self.n], self.r[self.n], self.s2[self.n] = s, a, r, s2
        self.n += 1

    def sample(self, rng, k):
        idx = rng.integers(0, self.n, k)
        return [torch.from_numpy(x[idx]) for x in (self.s, self.a, self.r, self.s2)]


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Learner:
    def __init__(self, cfg):
        self.actor = mlp(6, 64, 4)
        self.qs = nn.ModuleList(mlp(8, 64, 1) for _ in range(cfg.critics))
        self.slow = copy.deepcopy(self.qs).requires_grad_(False)
        self.live_p, self.slow_p = list(self.qs.parameters()), list(self.slow.parameters())
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.q_opt = torch.optim.Adam(self.live_p, 3e-4)

    def propose(self, s):
        mean, log_std = self.actor(s).chunk(2, -1)
        log_std, noise = log_std.clamp(-5, 2), torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        logp = (-0.5 * noise.pow(2) - log_std - 2 * (np.log(2) - u - nn.functional.softplus(-2 * u))).sum(-1)
        return torch.tanh(u), logp

    def backup(self, r, s2):
        with torch.no_grad():
            a2, logp = self.propose(s2)
            x = torch.cat([s2, a2], -1)
            low = torch.stack([q(x) for q in self.slow]).amin(0).squeeze(-1)
            return r + 0.98 * (low - 0.1 * logp)

    def fit_critics(self, s, a, r, s2):
        x, loss = torch.cat([s, a], -1), 0.0
        y = self.backup(r, s2) if FIXED else None
        for q in self.qs:
            goal = y if FIXED else self.backup(r, s2)
            loss = loss + nn.functional.mse_loss(q(x).squeeze(-1), goal)
        self.q_opt.zero_grad(), loss.backward()
        self.q_opt.step()

    def fit_actor(self, s):
        a, logp = self.propose(s)
        x = torch.cat([s, a], -1)
        value = torch.stack([q(x) for q in self.qs]).mean(0).squeeze(-1)
        self.actor_opt.zero_grad(), (0.1 * logp - value).mean().backward()
        self.actor_opt.step()

    @torch.no_grad()
    def follow(self):
        torch._foreach_lerp_(self.slow_p, self.live_p, 0.01)


def train(cfg):
    torch.manual_seed(cfg.seed), torch.set_num_threads(1)
    rng, env, learner, replay = np.random.default_rng(cfg.seed), PointMass(cfg.seed), Learner(cfg), Replay(20_000)
    s, updates, start = env.reset(), 0, time.perf_counter()
    for step in range(cfg.steps):
        with torch.no_grad():
            a = learner.propose(torch.from_numpy(s)[None])[0][0].numpy()
        s2, r = env.step(a)
        replay.add(s, a, r, s2)
        s = env.reset() if step % 60 == 59 else s2
        if step >= 200:
            batch = replay.sample(rng, cfg.batch)
            learner.fit_critics(*batch)
            learner.fit_actor(batch[0])
            learner.follow()
            updates += 1
    print(f"env_steps={cfg.steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    train(Config())
