"""PPO on a batch of pendulums that step together in numpy."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal


@dataclass
class Config:
    envs: int = 256
    horizon: int = 64
    iterations: int = 7
    epochs: int = 4
    minibatch: int = 2048
    gamma: float = 0.97
    lam: float = 0.95
    seed: int = 9


class Pendulums:
    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.th = rng.uniform(-np.pi, np.pi, n).astype(np.float32)
        self.w = rng.uniform(-1, 1, n).astype(np.float32)
        self.age = rng.integers(0, 200, n)

    def observe(self):
        return np.stack([np.cos(self.th), np.sin(self.th), self.w / 8], 1)

    def step(self, torque):
        u = np.clip(torque, -2, 2)
        ang = (self.th + np.pi) % (2 * np.pi) - np.pi
        reward = -(ang**2 + 0.1 * self.w**2 + 0.001 * u**2) / 16
        self.w = np.clip(self.w + (15 * np.sin(self.th) + 3 * u) * 0.05, -8, 8).astype(np.float32)
        self.th = self.th + self.w * np.float32(0.05)
        self.age += 1
        over = self.age >= 200
        k = int(over.sum())
        if k:
            self.th[over] = self.rng.uniform(-np.pi, np.pi, k)
            self.w[over], self.age[over] = self.rng.uniform(-1, 1, k), 0
        return self.observe(), reward.astype(np.float32), over.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.v = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def dist(self, obs):
        return Normal(self.pi(obs).squeeze(-1), self.log_std.exp(), validate_args=False)

    def value(self, obs):
        return self.v(obs).squeeze(-1)


class Rollout:
    def __init__(self, cfg):
        t, n = cfg.horizon, cfg.envs
        self.cfg, self.obs = cfg, torch.zeros(t, n, 3)
        self.act, self.logp, self.rew, self.over, self.val = (torch.zeros(t, n) for _ in range(5))

    @torch.no_grad()
    def fill(self, env, net):
        obs = torch.from_numpy(env.observe())
        for t in range(self.cfg.horizon):
            dist = net.dist(obs)
            act = dist.sample()
            self.obs[t], self.act[t], self.logp[t], self.val[t] = obs, act, dist.log_prob(act), net.value(obs)
            nxt, rew, over = env.step(act.numpy())
            self.rew[t], self.over[t] = torch.from_numpy(rew), torch.from_numpy(over)
            obs = torch.from_numpy(nxt)
        return self.advantages(net.value(obs))

    def advantages(self, nxt):
        adv, run, cfg = torch.zeros_like(self.rew), torch.zeros(self.cfg.envs), self.cfg
        live = 1 - self.over
        for t in range(cfg.horizon - 1, -1, -1):
            run = self.rew[t] + cfg.gamma * live[t] * nxt - self.val[t] + cfg.gamma * cfg.lam * live[t] * run
            adv[t], nxt = run, self.val[t]
        return adv


def improve(net, opt, roll, adv, cfg):
    flat = [x.flatten(0, 1) for x in (roll.obs, roll.act, roll.logp, adv, adv + roll.val)]
    count = 0
    for _ in range(cfg.epochs):
        for idx in torch.randperm(cfg.envs * cfg.horizon).split(cfg.minibatch):
            obs, act, logp, a, ret = (x[idx] for x in flat)
            a = (a - a.mean()) / (a.std() + 1e-8)
            ratio = (net.dist(obs).log_prob(act) - logp).exp()
            loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean() + 0.5 * (net.value(obs) - ret).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            count += 1
    return count


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    env, net = Pendulums(cfg.envs, np.random.default_rng(cfg.seed)), ActorCritic()
    opt, roll = torch.optim.Adam(net.parameters(), lr=3e-4), Rollout(cfg)
    env_steps = updates = 0
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        adv = roll.fill(env, net)
        updates += improve(net, opt, roll, adv, cfg)
        env_steps += cfg.envs * cfg.horizon
    print(f"env_steps={env_steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
