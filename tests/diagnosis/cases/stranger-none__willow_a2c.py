"""A2C on a batch of pendulum-like swingers."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Args:
    envs: int = 256
    horizon: int = 24
    iterations: int = 18
    gamma: float = 0.98
    lam: float = 0.95
    epochs: int = 3
    minibatches: int = 4
    seed: int = 7


class Swingers:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.angle, self.speed = self.rng.uniform(-np.pi, np.pi, n), np.zeros(n)
        self.age = self.rng.integers(0, 200, n)

    def observe(self):
        out = np.empty((self.n, 3), np.float32)
        np.cos(self.angle, out=out[:, 0], casting="same_kind")
        np.sin(self.angle, out=out[:, 1], casting="same_kind")
        out[:, 2] = self.speed / 8
        return out

    def step(self, torque):
        wrapped = (self.angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(wrapped ** 2 + 0.1 * self.speed ** 2 + 0.001 * torque ** 2) / 16
        self.speed = np.clip(self.speed + (15 * np.sin(self.angle) + 3 * torque) * 0.05, -8, 8)
        self.angle = self.angle + 0.05 * self.speed
        self.age += 1
        done = self.age >= 200
        if done.any():
            self.angle[done] = self.rng.uniform(-np.pi, np.pi, int(done.sum()))
            self.speed[done], self.age[done] = 0.0, 0
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.v = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, obs):
        return self.pi(obs).squeeze(-1), self.v(obs).squeeze(-1)

    def logp(self, mean, act):
        return -0.5 * ((act - mean) * torch.exp(-self.log_std)).pow(2) - self.log_std


class Rollout:
    def __init__(self, args):
        shape = (args.horizon, args.envs)
        self.obs = torch.zeros(*shape, 3)
        self.act, self.logp, self.rew, self.done, self.val = (torch.zeros(shape) for _ in range(5))

    def fill(self, args, policy, env, obs):
        with torch.no_grad():
            for t in range(args.horizon):
                self.obs[t] = torch.from_numpy(obs)
                mean, self.val[t] = policy(self.obs[t])
                self.act[t] = mean + policy.log_std.exp() * torch.randn_like(mean)
                self.logp[t] = policy.logp(mean, self.act[t])
                obs, rew, done = env.step(np.clip(self.act[t].numpy(), -2, 2))
                self.rew[t], self.done[t] = torch.from_numpy(rew), torch.from_numpy(done)
            self.last = policy(torch.from_numpy(obs))[1]
        return obs

    def advantages(self, args):
        adv, run = torch.zeros_like(self.rew), torch.zeros(args.envs)
        after = torch.cat([self.val[1:], self.last[None]])
        delta = self.rew + args.gamma * after * (1 - self.done) - self.val
        keep = args.gamma * args.lam * (1 - self.done)
        for t in reversed(range(args.horizon)):
            run = delta[t] + keep[t] * run
            adv[t] = run
        return adv


def improve(args, policy, opt, roll):
    adv = roll.advantages(args)
    obs, act, logp, ret = roll.obs.flatten(0, 1), roll.act.flatten(), roll.logp.flatten(), (adv + roll.val).flatten()
    adv = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
    for _ in range(args.epochs):
        for idx in torch.randperm(len(act)).chunk(args.minibatches):
            mean, value = policy(obs[idx])
            ratio = (policy.logp(mean, act[idx]) - logp[idx]).exp()
            pg = -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
            opt.zero_grad()
            (pg + 0.5 * (value - ret[idx]).pow(2).mean()).backward()
            opt.step()


def main(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env, policy, roll = Swingers(args.envs, args.seed), Policy(), Rollout(args)
    opt = torch.optim.Adam(policy.parameters(), 3e-4)
    obs, start = env.observe(), time.perf_counter()
    for _ in range(args.iterations):
        obs = roll.fill(args, policy, env, obs)
        improve(args, policy, opt, roll)
    steps, updates = args.iterations * args.horizon * args.envs, args.iterations * args.epochs * args.minibatches
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main(Args())
