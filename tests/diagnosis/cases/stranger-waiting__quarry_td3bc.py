"""TD3+BC on a logged data set of a noisy point-mass controller; batches are prepared in the background."""
import copy
import os
import queue
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Args:
    seed: int = 11
    dataset: int = 60_000
    updates: int = 700
    batch: int = 128
    hidden: int = 96
    eval_every: int = 100
    depth: int = 3


class PointMass:
    """Several masses at once, to be parked at the origin."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng

    def reset(self):
        self.x = self.rng.uniform(-1, 1, (self.n, 2)).astype(np.float32)
        self.v = np.zeros((self.n, 2), np.float32)
        return self.obs()

    def obs(self):
        return np.concatenate([self.x, self.v, np.sin(3 * self.x), np.abs(self.v)], 1)

    def step(self, a):
        self.v = 0.9 * self.v + 0.1 * np.clip(a, -1, 1)
        self.x = np.clip(self.x + 0.1 * self.v, -2, 2)
        return self.obs(), -np.abs(self.x).sum(1) - 0.05 * (a * a).sum(1)


def log_data(args, rng):
    env = PointMass(300, rng)
    parts, o = [], env.reset()
    for t in range(args.dataset // env.n):
        a = (-1.5 * o[:, :2] - o[:, 2:4] + 0.4 * rng.standard_normal((env.n, 2))).clip(-1, 1).astype(np.float32)
        n, r = env.step(a)
        parts.append((o, a, r.astype(np.float32), n))
        o = env.reset() if t % 100 == 99 else n
    return [np.concatenate(p) for p in zip(*parts)]


class Feeder(threading.Thread):
    def __init__(self, data, args):
        super().__init__(daemon=True)
        self.data, self.args = data, args
        self.rng = np.random.default_rng(args.seed)
        self.mean, self.std = data[0].mean(0), data[0].std(0) + 1e-3
        self.out = queue.Queue(maxsize=args.depth)
        self.left = args.updates

    def build(self):
        idx = self.rng.integers(0, len(self.data[0]), self.args.batch)
        o, a, r, n = (d[idx] for d in self.data)
        return tuple(torch.from_numpy(x) for x in ((o - self.mean) / self.std, a, r, (n - self.mean) / self.std))

    def run(self):
        while self.left:
            if not FIXED and self.out.full():
                time.sleep(0.02)
                continue
            self.out.put(self.build())
            self.left -= 1

    def next(self):
        return self.out.get()


def mlp(i, o, h):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, o))


class Agent:
    def __init__(self, args):
        self.actor = nn.Sequential(mlp(8, 2, args.hidden), nn.Tanh())
        self.q1, self.q2 = mlp(10, 1, args.hidden), mlp(10, 1, args.hidden)
        self.targets = copy.deepcopy([self.actor, self.q1, self.q2])
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.opt_q = torch.optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=3e-4)

    def critic_step(self, o, a, r, n):
        ta, t1, t2 = self.targets
        with torch.no_grad():
            na = (ta(n) + (0.2 * torch.randn_like(a)).clamp(-0.5, 0.5)).clamp(-1, 1)
            x = torch.cat([n, na], 1)
            goal = r + 0.98 * torch.min(t1(x), t2(x)).squeeze(1)
        x = torch.cat([o, a], 1)
        loss = F.mse_loss(self.q1(x).squeeze(1), goal) + F.mse_loss(self.q2(x).squeeze(1), goal)
        self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()

    def actor_step(self, o, a):
        pi = self.actor(o)
        q = self.q1(torch.cat([o, pi], 1))
        loss = -2.5 * q.mean() / q.abs().mean().detach() + F.mse_loss(pi, a)
        self.opt_a.zero_grad()
        loss.backward()
        self.opt_a.step()

    @torch.no_grad()
    def sync(self, tau=0.005):
        for net, tgt in zip((self.actor, self.q1, self.q2), self.targets):
            torch._foreach_lerp_(list(tgt.parameters()), list(net.parameters()), tau)


@torch.no_grad()
def evaluate(agent, feeder, env):
    o, score = env.reset(), 0.0
    for _ in range(100):
        a = agent.actor(torch.from_numpy((o - feeder.mean) / feeder.std)).numpy()
        o, r = env.step(a)
        score += r.mean()
    return 100 * env.n, score


def main():
    args = Args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    feeder, agent = Feeder(log_data(args, rng), args), Agent(args)
    env, env_steps = PointMass(16, rng), 0
    start = time.perf_counter()
    feeder.start()
    for update in range(1, args.updates + 1):
        o, a, r, n = feeder.next()
        agent.critic_step(o, a, r, n)
        if update % 2 == 0:
            agent.actor_step(o, a)
            agent.sync()
        if update % args.eval_every == 0:
            env_steps += evaluate(agent, feeder, env)[0]
    print(f"env_steps={env_steps} updates={args.updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
