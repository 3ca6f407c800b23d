"""Offline RL: implicit Q-learning on logged point-mass data, with evaluation rollouts."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


@dataclass
class IQLConfig:
    num_envs: int = 40
    log_steps: int = 2000
    updates: int = 420
    eval_every: int = 120
    batch: int = 256
    hidden: int = 64
    gamma: float = 0.97
    expectile: float = 0.75
    beta: float = 3.0
    tau: float = 0.01
    lr: float = 1e-3
    seed: int = 21


class PointMass:
    """A batch of point masses pushed towards individual targets."""

    def __init__(self, n, rng):
        self.n, self.rng, self.steps = n, rng, 0

    def reset(self):
        self.pos, self.vel = self.rng.uniform(-1, 1, (self.n, 3)), np.zeros((self.n, 3))
        self.goal = self.rng.uniform(-1, 1, (self.n, 3))
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.goal, self.goal - self.pos], axis=1).astype(np.float32)

    def step(self, act):
        self.vel = 0.9 * self.vel + 0.1 * np.clip(act, -1, 1)
        self.pos = np.clip(self.pos + 0.2 * self.vel, -1.5, 1.5)
        self.steps += self.n
        reward = -np.linalg.norm(self.goal - self.pos, axis=1) - 0.02 * (act**2).sum(1)
        return self.observe(), reward.astype(np.float32)


def record(env, path, cfg, rng):
    log = {name: [] for name in ("observations", "actions", "rewards", "next_observations", "discounts")}
    for t in range(cfg.log_steps):
        obs = env.reset() if t % 50 == 0 else nxt
        noise = rng.normal(0, 0.6, (env.n, 3))
        act = np.clip(1.5 * (env.goal - env.pos) - 0.5 * env.vel + noise, -1, 1).astype(np.float32)
        nxt, rew = env.step(act)
        for name, value in zip(log, (obs, act, rew, nxt, np.full(env.n, cfg.gamma, np.float32))):
            log[name].append(value)
    np.savez(path, **{name: np.concatenate(values) for name, values in log.items()})


class OfflineDataset:
    def __init__(self, path, seed):
        self.data = np.load(path)
        if FIXED:
            self.data = dict(self.data)
        self.size = len(self.data["rewards"])
        self.rng = np.random.default_rng(seed)

    def sample(self, batch):
        index = self.rng.integers(self.size, size=batch)
        names = ("observations", "actions", "rewards", "next_observations", "discounts")
        return [torch.from_numpy(self.data[name][index]) for name in names]


def mlp(inp, out, hidden):
    return nn.Sequential(nn.Linear(inp, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, out))


class IQL:
    def __init__(self, cfg):
        self.cfg = cfg
        self.q, self.q_target = mlp(15, 2, cfg.hidden), mlp(15, 2, cfg.hidden)
        self.q_target.load_state_dict(self.q.state_dict())
        self.v, self.actor = mlp(12, 1, cfg.hidden), mlp(12, 3, cfg.hidden)
        self.params = [*self.q.parameters(), *self.v.parameters(), *self.actor.parameters()]
        self.opt = torch.optim.Adam(self.params, lr=cfg.lr)

    def act(self, obs):
        with torch.no_grad():
            return torch.tanh(self.actor(torch.from_numpy(obs))).numpy()

    def update(self, obs, act, rew, nxt, discount):
        pair = torch.cat([obs, act], 1)
        with torch.no_grad():
            q_min = self.q_target(pair).amin(1)
            goal = rew + discount * self.v(nxt)[:, 0]
        adv = q_min - self.v(obs)[:, 0]
        v_loss = ((self.cfg.expectile - (adv < 0).float()).abs() * adv.pow(2)).mean()
        q_loss = F.mse_loss(self.q(pair), goal[:, None].expand(-1, 2))
        weight = (self.cfg.beta * adv.detach()).exp().clamp(max=50.0)
        pi_loss = (weight * (torch.tanh(self.actor(obs)) - act).pow(2).sum(1)).mean()
        self.opt.zero_grad()
        (v_loss + q_loss + pi_loss).backward()
        self.opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.q_target.parameters()), list(self.q.parameters()), self.cfg.tau)


def evaluate(agent, env, steps=50):
    obs, total = env.reset(), 0.0
    for _ in range(steps):
        obs, rew = env.step(agent.act(obs))
        total += rew.mean()
    return total


cfg = IQLConfig()
torch.manual_seed(cfg.seed)
rng = np.random.default_rng(cfg.seed)
env, agent, scores = PointMass(cfg.num_envs, rng), IQL(cfg), []
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "point_mass.npz")
    start = time.perf_counter()
    record(env, path, cfg, rng)
    dataset = OfflineDataset(path, cfg.seed)
    for step in range(1, cfg.updates + 1):
        agent.update(*dataset.sample(cfg.batch))
        if step % cfg.eval_every == 1:
            scores.append(evaluate(agent, env))
    seconds = time.perf_counter() - start
print("returns", [f"{score:.2f}" for score in scores])
print(f"env_steps={env.steps} updates={cfg.updates} seconds={seconds:.3f}")
