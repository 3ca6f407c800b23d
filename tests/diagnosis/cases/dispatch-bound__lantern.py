"""Quantile-regression DQN on a lamp-lighting puzzle with a noisy payoff."""
import os
import random
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N_LAMPS = 8
N_QUANTILES = 16
BATCH = 32
GAMMA = 0.95


class LampRow:
    """Pressing lamp k toggles it and its neighbours; all lit ends the episode, every press costs a noisy fee."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.lamps = self.rng.integers(0, 2, N_LAMPS).astype(np.float32)
        self.presses = 0
        return self.lamps.copy()

    def step(self, k):
        lo, hi = max(0, k - 1), min(N_LAMPS, k + 2)
        self.lamps[lo:hi] = 1.0 - self.lamps[lo:hi]
        self.presses += 1
        lit = bool(self.lamps.all())
        reward = (5.0 if lit else -0.1) + 0.2 * self.rng.standard_normal()
        return self.lamps.copy(), float(reward), lit, self.presses >= 30


class QuantileNet(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(N_LAMPS, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, N_LAMPS * N_QUANTILES),
        )

    def forward(self, x):
        return self.layers(x).view(-1, N_LAMPS, N_QUANTILES)


class Buffer:
    def __init__(self, size):
        self.s = np.zeros((size, N_LAMPS), np.float32)
        self.s2 = np.zeros((size, N_LAMPS), np.float32)
        self.a = np.zeros(size, np.int64)
        self.r = np.zeros(size, np.float32)
        self.end = np.zeros(size, np.float32)
        self.size, self.n = size, 0

    def push(self, s, a, r, s2, end):
        i = self.n % self.size
        self.s[i], self.a[i], self.r[i], self.s2[i], self.end[i] = s, a, r, s2, end
        self.n += 1

    def draw(self):
        i = np.random.randint(0, min(self.n, self.size), BATCH)
        return [torch.from_numpy(x[i]) for x in (self.s, self.a, self.r, self.s2, self.end)]


TAUS = (torch.arange(N_QUANTILES) + 0.5) / N_QUANTILES


def quantile_huber(pred, target):
    """Pairwise loss between predicted and target quantiles, both (batch, quantiles)."""
    if FIXED:
        diff = target.unsqueeze(1) - pred.unsqueeze(2)
        huber = torch.where(diff.abs() <= 1.0, 0.5 * diff.pow(2), diff.abs() - 0.5)
        weight = (TAUS.view(1, -1, 1) - (diff.detach() < 0).float()).abs()
        return (weight * huber).mean(2).sum(1).mean()
    total = 0.0
    for p, t in zip(pred, target):
        diff = t.unsqueeze(0) - p.unsqueeze(1)
        huber = torch.where(diff.abs() <= 1.0, 0.5 * diff.pow(2), diff.abs() - 0.5)
        weight = (TAUS.unsqueeze(1) - (diff.detach() < 0).float()).abs()
        total = total + (weight * huber).mean(1).sum()
    return total / pred.shape[0]


def update(net, target_net, optimizer, buffer):
    s, a, r, s2, end = buffer.draw()
    with torch.no_grad():
        following = target_net(s2)
        best = following.mean(2).argmax(1)
        goal = r.unsqueeze(1) + GAMMA * (1 - end).unsqueeze(1) * following[torch.arange(BATCH), best]
    loss = quantile_huber(net(s)[torch.arange(BATCH), a], goal)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def main(steps=9600, learn_start=200, train_every=8):
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    env, buffer = LampRow(1), Buffer(10_000)
    net, target_net = QuantileNet(), QuantileNet()
    target_net.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, fused=True)
    updates, s = 0, env.reset()
    start = time.perf_counter()
    for step in range(steps):
        if random.random() < max(0.05, 1 - step / 2000):
            a = random.randrange(N_LAMPS)
        else:
            with torch.no_grad():
                a = int(net(torch.from_numpy(s)).mean(2).argmax())
        s2, r, end, cut = env.step(a)
        buffer.push(s, a, r, s2, end)
        s = env.reset() if end or cut else s2
        if step >= learn_start and step % train_every == 0:
            update(net, target_net, optimizer, buffer)
            updates += 1
            if updates % 100 == 0:
                target_net.load_state_dict(net.state_dict())
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
