"""Soft Q-learning for a grazing herd simulation: deep narrow residual net, several updates per step."""
import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=1300)
    p.add_argument("--learn-start", type=int, default=100)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--blocks", type=int, default=8)
    p.add_argument("--width", type=int, default=24)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--gamma", type=float, default=0.96)
    p.add_argument("--alpha", type=float, default=0.05)
    p.add_argument("--seed", type=int, default=6)
    return p.parse_args()


class Meadow:
    """Grass grows on six patches; the herd grazes one of them, and walking between them is tiring."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.grass = self.rng.random(6).astype(np.float32)
        self.at, self.energy, self.t = 0, 1.0, 0
        return self.observe()

    def observe(self):
        place = np.zeros(6, np.float32)
        place[self.at] = 1.0
        return np.concatenate([self.grass, place, [self.energy, self.t / 80]]).astype(np.float32)

    def step(self, patch):
        walk = abs(patch - self.at)
        self.at = patch
        eaten = 0.5 * float(self.grass[patch])
        self.grass[patch] -= eaten
        self.grass = np.clip(self.grass * 1.06 + 0.01, 0, 1).astype(np.float32)
        self.energy = min(1.0, self.energy + eaten - 0.06 - 0.04 * walk)
        self.t += 1
        starved = self.energy <= 0
        return self.observe(), eaten - 0.02 * walk - (1.0 if starved else 0.0), starved, self.t >= 80


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.addcmul(x + self.shift, self.gain, self.down(F.relu(self.up(self.norm(x)))))


class QNet(nn.Module):
    def __init__(self, blocks, width):
        super().__init__()
        self.stem = nn.Linear(14, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 6)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def soft_update(q, target, optimizer, batch, args):
    s, a, r, s2, end = batch
    with torch.no_grad():
        v2 = args.alpha * torch.logsumexp(target(s2) / args.alpha, dim=1)
        goal = r + args.gamma * (1 - end) * v2
    loss = F.mse_loss(q(s).gather(1, a.unsqueeze(1)).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    args = parse()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    env = Meadow(args.seed)
    q, target = QNet(args.blocks, args.width), QNet(args.blocks, args.width)
    target.load_state_dict(q.state_dict())
    extra = {"fused": True} if FIXED else {}
    optimizer = torch.optim.AdamW(q.parameters(), lr=args.lr, weight_decay=1e-4, **extra)
    s_, s2_ = np.zeros((2, args.steps, 14), np.float32)
    a_, r_, end_ = np.zeros(args.steps, np.int64), np.zeros(args.steps, np.float32), np.zeros(args.steps, np.float32)
    updates, s = 0, env.reset()
    start = time.perf_counter()
    for t in range(args.steps):
        with torch.no_grad():
            a = int(torch.multinomial(torch.softmax(q(torch.from_numpy(s)) / args.alpha, 0), 1))
        s2, r, starved, cut = env.step(a)
        s_[t], a_[t], r_[t], s2_[t], end_[t] = s, a, r, s2, starved
        s = env.reset() if starved or cut else s2
        if t >= args.learn_start:
            rows = rng.integers(0, t + 1, args.batch)
            soft_update(q, target, optimizer, [torch.from_numpy(x[rows]) for x in (s_, a_, r_, s2_, end_)], args)
            updates += 1
            if updates % 200 == 0:
                target.load_state_dict(q.state_dict())
    print(f"env_steps={args.steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
