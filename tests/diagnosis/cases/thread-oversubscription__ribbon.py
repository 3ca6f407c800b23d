"""Synchronous actors in processes, one learner: gymnast's ribbon (a driven chain) with a wide policy."""
import multiprocessing as mp
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

FIXED = os.environ.get("FIXED") == "1"
ACTORS, ENVS, STEPS, ROUNDS, LINKS = 4, 80, 32, 40, 12


class RibbonBatch:
    """ENVS chains of LINKS springs; the first link is driven, the tip should follow a circle."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.normal(0, 0.1, (ENVS, LINKS, 2))
        self.v = np.zeros_like(self.x)
        self.phase = self.rng.uniform(0, 6.28, ENVS)

    def observe(self):
        ring = np.stack([np.cos(self.phase), np.sin(self.phase)], 1)
        flat = [self.x.reshape(ENVS, -1), self.v.reshape(ENVS, -1), ring]
        return torch.from_numpy(np.concatenate(flat, 1).astype(np.float32))

    def step(self, action):
        self.x[:, 0] = np.clip(self.x[:, 0] + 0.1 * action, -2, 2)
        pull = np.zeros_like(self.x)
        pull[:, 1:] += self.x[:, :-1] - self.x[:, 1:]
        pull[:, :-1] += self.x[:, 1:] - self.x[:, :-1]
        self.v = 0.95 * self.v + 0.2 * pull
        self.x[:, 1:] += 0.1 * self.v[:, 1:]
        self.phase += 0.05
        ring = np.stack([np.cos(self.phase), np.sin(self.phase)], 1)
        return -np.linalg.norm(self.x[:, -1] - ring, axis=1)


def make_policy():
    n = 4 * LINKS + 2
    return nn.Sequential(nn.Linear(n, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


def actor(rank, pipe):
    torch.set_num_threads(1 if FIXED else 6)
    torch.manual_seed(rank)
    env, policy = RibbonBatch(rank), make_policy()
    pipe.send("ready")
    while True:
        weights = pipe.recv()
        if weights is None:
            return
        policy.load_state_dict({k: torch.from_numpy(v) for k, v in weights.items()})
        obs, act, rew = [], [], []
        with torch.no_grad():
            for _ in range(STEPS):
                o = env.observe()
                a = Normal(policy(o), 0.3, validate_args=False).sample()
                obs.append(o.numpy())
                act.append(a.numpy())
                rew.append(env.step(a.numpy()))
        pipe.send((np.stack(obs), np.stack(act), np.stack(rew).astype(np.float32)))


def returns_to_go(rew, gamma=0.95):
    out, carry = np.zeros_like(rew), np.zeros(rew.shape[1], np.float32)
    for t in range(len(rew) - 1, -1, -1):
        carry = rew[t] + gamma * carry
        out[t] = carry
    return out


def learn(policy, opt, parts, rng, rows=1024):
    obs = torch.from_numpy(np.concatenate([p[0].reshape(-1, p[0].shape[-1]) for p in parts]))
    act = torch.from_numpy(np.concatenate([p[1].reshape(-1, 2) for p in parts]))
    ret = torch.from_numpy(np.concatenate([returns_to_go(p[2]).ravel() for p in parts]))
    adv = (ret - ret.mean()) / (ret.std() + 1e-6)
    keep = torch.from_numpy(rng.choice(len(obs), rows, replace=False))
    obs, act, adv = obs[keep], act[keep], adv[keep]
    logp = Normal(policy(obs), 0.3, validate_args=False).log_prob(act).sum(-1)
    loss = -(logp * adv).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ctx = mp.get_context("spawn")
    pipes, procs = [], []
    for rank in range(ACTORS):
        here, there = ctx.Pipe()
        proc = ctx.Process(target=actor, args=(rank, there), daemon=True)
        proc.start()
        pipes.append(here)
        procs.append(proc)
    for pipe in pipes:
        pipe.recv()
    policy = make_policy()
    opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
    steps = updates = 0
    start = time.perf_counter()
    for _ in range(ROUNDS):
        weights = {k: v.numpy().copy() for k, v in policy.state_dict().items()}
        for pipe in pipes:
            pipe.send(weights)
        parts = [pipe.recv() for pipe in pipes]
        learn(policy, opt, parts, rng)
        steps += ACTORS * STEPS * ENVS
        updates += 1
    seconds = time.perf_counter() - start
    for pipe, proc in zip(pipes, procs):
        pipe.send(None)
        proc.join()
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
