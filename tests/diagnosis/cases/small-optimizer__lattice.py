"""A lattice of small value networks, one per cell, trained together by temporal differences."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
CELLS, WIDTH, ROUNDS, STEPS = 40, 6, 1_300, 8


class Plate:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.heat = self.rng.normal(0, 1, (CELLS, WIDTH)).astype(np.float32)
        return self.heat

    def step(self, power):
        self.heat = 0.9 * self.heat + 0.05 * np.roll(self.heat, 1, axis=0)
        self.heat[:, 0] += 0.1 * power
        return self.heat, -np.abs(self.heat).mean(1)


class Lattice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ParameterList(nn.Parameter(0.3 * torch.randn(WIDTH, 16)) for _ in range(CELLS))
        self.offset = nn.ParameterList(nn.Parameter(torch.zeros(16)) for _ in range(CELLS))
        self.last = nn.ParameterList(nn.Parameter(0.3 * torch.randn(16, 1)) for _ in range(CELLS))

    def forward(self, seen):
        first, offset, last = (torch.stack(list(group)) for group in (self.first, self.offset, self.last))
        hidden = torch.tanh(torch.baddbmm(offset[:, None], seen, first))
        return torch.bmm(hidden, last)[..., 0]


def gather(plate, seen, rng):
    rows, rewards = [seen], []
    for _ in range(STEPS):
        seen, reward = plate.step(rng.integers(-1, 2, CELLS))
        rows.append(seen)
        rewards.append(reward)
    return seen, torch.from_numpy(np.stack(rows, 1)), torch.from_numpy(np.stack(rewards, 1).astype(np.float32))


def learn(lattice, optimizer, rows, rewards):
    with torch.no_grad():
        goal = rewards + 0.95 * lattice(rows[:, 1:])
    loss = (lattice(rows[:, :-1]) - goal).pow(2).sum(0).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng, plate, lattice = np.random.default_rng(2), Plate(2), Lattice()
    optimizer = torch.optim.Adam(lattice.parameters(), lr=1e-3, foreach=FIXED)
    seen = plate.reset()
    start = time.perf_counter()
    for _ in range(ROUNDS):
        seen, rows, rewards = gather(plate, seen, rng)
        learn(lattice, optimizer, rows, rewards)
    print(f"env_steps={ROUNDS * STEPS} updates={ROUNDS} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
