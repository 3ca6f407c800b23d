"""PPO for a herd: 192 sheepdogs trained in one batched numpy world."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    n_envs: int = 192
    horizon: int = 128
    gamma: float = 0.99
    lam: float = 0.95
    minibatches: int = 4
    iterations: int = 60


class HerdWorld:
    """Each row is one dog and one sheep on a plane; the sheep flees, the dog should pen it at the origin."""

    def __init__(self, cfg):
        self.n, self.rng = cfg.n_envs, np.random.default_rng(5)
        self.dog, self.sheep = np.zeros((self.n, 2)), np.zeros((self.n, 2))
        self.t = np.zeros(self.n, np.int64)

    def _respawn(self, mask):
        k = int(mask.sum())
        self.dog[mask] = self.rng.uniform(-2, 2, (k, 2))
        self.sheep[mask] = self.rng.uniform(-1.5, 1.5, (k, 2))
        self.t[mask] = self.rng.integers(0, 50, k)

    def reset(self):
        self._respawn(np.ones(self.n, bool))
        return self.observe()

    def observe(self):
        return np.concatenate([self.dog, self.sheep, self.sheep - self.dog], 1).astype(np.float32)

    def step(self, action):
        self.dog += 0.1 * np.clip(action, -1, 1)
        away = self.sheep - self.dog
        gap = np.linalg.norm(away, axis=1, keepdims=True) + 1e-3
        self.sheep += 0.05 * away / gap * np.exp(-gap)
        self.t += 1
        dist = np.linalg.norm(self.sheep, axis=1)
        done = (dist < 0.1) | (self.t >= 150)
        reward = (-dist + 5.0 * (dist < 0.1)).astype(np.float32)
        self._respawn(done)
        return self.observe(), reward, done


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))
        self.vf = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def dist(self, x):
        return Normal(self.pi(x), self.log_std.exp(), validate_args=False)


def advantages(cfg, rew, val, done, last):
    adv, ret = np.zeros_like(rew), np.zeros_like(rew)
    decay = cfg.gamma * cfg.lam
    if FIXED:
        carry, total, nxt = np.zeros_like(last), last, last
        for t in range(cfg.horizon - 1, -1, -1):
            live = 1.0 - done[t]
            carry = rew[t] + cfg.gamma * nxt * live - val[t] + decay * live * carry
            total = rew[t] + cfg.gamma * live * total
            adv[t], ret[t], nxt = carry, total, val[t]
        return adv, ret
    for i in range(cfg.n_envs):
        carry, total = 0.0, last[i]
        for t in reversed(range(cfg.horizon)):
            nxt = last[i] if t == cfg.horizon - 1 else val[t + 1, i]
            live = 1.0 - done[t, i]
            carry = rew[t, i] + cfg.gamma * nxt * live - val[t, i] + decay * live * carry
            total = rew[t, i] + cfg.gamma * live * total
            adv[t, i], ret[t, i] = carry, total
    return adv, ret


def rollout(cfg, env, agent, obs):
    T, N = cfg.horizon, cfg.n_envs
    O, A, L, R, V, D = (np.zeros((T, N) + tail, np.float32) for tail in ((6,), (2,), (), (), (), ()))
    with torch.no_grad():
        for t in range(T):
            d = agent.dist(torch.from_numpy(obs))
            a = d.sample()
            O[t], A[t], L[t] = obs, a.numpy(), d.log_prob(a).sum(-1).numpy()
            obs, R[t], D[t] = env.step(A[t])
        V[:] = agent.vf(torch.from_numpy(O)).squeeze(-1).numpy()
        last = agent.vf(torch.from_numpy(obs)).squeeze(-1).numpy()
    return obs, O, A, L, *advantages(cfg, R, V, D, last)


def improve(cfg, agent, opt, O, A, L, adv, ret, rng):
    ret = torch.from_numpy(ret.ravel())
    adv = torch.from_numpy(((adv - adv.mean()) / (adv.std() + 1e-6)).ravel())
    O, A, L = (torch.from_numpy(x.reshape(-1, *x.shape[2:])) for x in (O, A, L))
    for idx in np.array_split(rng.permutation(len(O)), cfg.minibatches):
        idx = torch.from_numpy(idx)
        ratio = (agent.dist(O[idx]).log_prob(A[idx]).sum(-1) - L[idx]).exp()
        loss = -torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx]).mean()
        loss = loss + 0.5 * (agent.vf(O[idx]).squeeze(-1) - ret[idx]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return cfg.minibatches


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(5)
    cfg = Config()
    env, agent, rng = HerdWorld(cfg), Agent(), np.random.default_rng(5)
    opt, obs, updates = torch.optim.Adam(agent.parameters(), lr=3e-4), env.reset(), 0
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        obs, *batch = rollout(cfg, env, agent, obs)
        updates += improve(cfg, agent, opt, *batch, rng)
    print(f"env_steps={cfg.iterations * cfg.horizon * cfg.n_envs} updates={updates} seconds={time.perf_counter() - start:.3f}")
