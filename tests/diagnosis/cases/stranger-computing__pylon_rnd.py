"""PPO with a novelty bonus (random network distillation) on a batch of key-and-door rooms."""
import os
import time
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    envs: int = 16
    horizon: int = 64
    iterations: int = 4
    epochs: int = 3
    minibatch: int = 256
    size: int = 9
    seed: int = 2
    bonus: float = 0.5


class Rooms:
    """All rooms step together; pick up the key, then reach the door."""

    def __init__(self, n, size, rng):
        self.n, self.size, self.rng = n, size, rng
        self.rows = np.arange(n)
        self.state = rng.integers(0, size, (n, 3, 2))
        self.has, self.age = np.zeros(n, bool), np.zeros(n, int)

    def observe(self):
        grid = np.zeros((self.n, 4, self.size, self.size), np.float32)
        for ch in range(3):
            grid[self.rows, ch, self.state[:, ch, 0], self.state[:, ch, 1]] = 1.0
        grid[:, 3] = self.has[:, None, None]
        return grid

    def step(self, act):
        move = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])[act]
        self.state[:, 0] = np.clip(self.state[:, 0] + move, 0, self.size - 1)
        at_key = (self.state[:, 0] == self.state[:, 1]).all(1)
        done = (self.state[:, 0] == self.state[:, 2]).all(1) & self.has
        self.has |= at_key
        reward = done.astype(np.float32)
        self.age += 1
        over = done | (self.age >= 100)
        if over.any():
            self.state[over] = self.rng.integers(0, self.size, (int(over.sum()), 3, 2))
            self.has[over], self.age[over] = False, 0
        return self.observe(), reward, over.astype(np.float32)


class Policy(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(16 * ((size - 1) // 2) ** 2, 128), nn.ReLU())
        self.pi, self.v = nn.Linear(128, 4), nn.Linear(128, 1)

    def forward(self, x):
        z = self.body(x)
        return Categorical(logits=self.pi(z), validate_args=False), self.v(z).squeeze(-1)


class Novelty(nn.Module):
    def __init__(self, size, width=32, out=64):
        super().__init__()

        def trunk():
            return [nn.Conv2d(4, width, 3, padding=1), nn.LeakyReLU(), nn.Conv2d(width, width, 3, padding=1),
                    nn.LeakyReLU(), nn.Flatten(), nn.Linear(width * size * size, out)]

        self.anchor = nn.Sequential(*trunk())
        self.guess = nn.Sequential(*trunk(), nn.ReLU(), nn.Linear(out, out))
        self.scale = 1.0

    def error(self, obs):
        if FIXED:
            with torch.no_grad():
                goal = self.anchor(obs)
        else:
            goal = self.anchor(obs)
        return F.mse_loss(self.guess(obs), goal, reduction="none").mean(1)

    @torch.no_grad()
    def bonus(self, obs):
        raw = self.error(obs)
        self.scale = 0.99 * self.scale + 0.01 * raw.std().item()
        return raw / (self.scale + 1e-6)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.env = Rooms(cfg.envs, cfg.size, np.random.default_rng(cfg.seed))
        self.policy, self.novelty = Policy(cfg.size), Novelty(cfg.size)
        self.opt = torch.optim.Adam([*self.policy.parameters(), *self.novelty.guess.parameters()], lr=3e-4)
        self.obs = torch.from_numpy(self.env.observe())
        self.updates = 0

    @torch.no_grad()
    def rollout(self):
        cfg, rows = self.cfg, []
        for _ in range(cfg.horizon):
            dist, value = self.policy(self.obs)
            act = dist.sample()
            nxt, rew, over = self.env.step(act.numpy())
            nxt = torch.from_numpy(nxt)
            rew = torch.from_numpy(rew) + cfg.bonus * self.novelty.bonus(nxt)
            rows.append((self.obs, act, dist.log_prob(act), value, rew, torch.from_numpy(over)))
            self.obs = nxt
        return SimpleNamespace(**dict(zip(("obs", "act", "logp", "val", "rew", "over"), map(torch.stack, zip(*rows)))))

    @torch.no_grad()
    def advantages(self, r):
        adv, run, nxt = torch.zeros_like(r.rew), 0.0, self.policy(self.obs)[1]
        for t in range(self.cfg.horizon - 1, -1, -1):
            delta = r.rew[t] + 0.99 * nxt * (1 - r.over[t]) - r.val[t]
            run = delta + 0.99 * 0.95 * (1 - r.over[t]) * run
            adv[t], nxt = run, r.val[t]
        return adv

    def losses(self, obs, act, logp, adv, ret):
        dist, value = self.policy(obs)
        ratio = (dist.log_prob(act) - logp).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        return pg + 0.5 * F.mse_loss(value, ret) - 0.01 * dist.entropy().mean() + self.novelty.error(obs).mean()

    def improve(self, r):
        adv = self.advantages(r)
        flat = [x.flatten(0, 1) for x in (r.obs, r.act, r.logp, adv, adv + r.val)]
        for _ in range(self.cfg.epochs):
            for idx in torch.randperm(len(flat[0])).split(self.cfg.minibatch):
                loss = self.losses(*(x[idx] for x in flat))
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.updates += 1


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    trainer = Trainer(cfg)
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        trainer.improve(trainer.rollout())
    seconds = time.perf_counter() - start
    print(f"env_steps={cfg.iterations * cfg.horizon * cfg.envs} updates={trainer.updates} seconds={seconds:.3f}")
