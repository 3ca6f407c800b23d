"""Advantage-weighted regression from a log of an orchard robot, with a short drive at the end of each epoch."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
ROWS, WIDTH, BATCH, EPOCHS = 20_000, 14, 128, 28


class Grove:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.normal(0, 1, WIDTH).astype(np.float32)
        return self.state

    def step(self, action):
        self.state = 0.95 * self.state
        self.state[action] -= 0.1
        return self.state, float(-np.abs(self.state).mean()), False


class Log(Dataset):
    def __init__(self, rng):
        self.seen = rng.normal(0, 1, (ROWS, WIDTH)).astype(np.float32)
        self.action = rng.integers(0, 4, ROWS)
        self.gain = rng.normal(0, 1, ROWS).astype(np.float32)

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return self.seen[row], self.action[row], self.gain[row]

    def batches(self):
        columns = [torch.from_numpy(column) for column in (self.seen, self.action, self.gain)]
        for rows in torch.randperm(ROWS).split(BATCH):
            if len(rows) == BATCH:
                yield [column[rows] for column in columns]


class Imitator:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.updates = 0

    def fit(self, batches):
        for seen, action, gain in batches:
            loss = (nn.functional.cross_entropy(self.net(seen), action, reduction="none") * gain.exp().clamp(max=5)).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.updates += 1

    def drive(self, grove, steps):
        seen = grove.reset()
        for _ in range(steps):
            with torch.no_grad():
                action = int(self.net(torch.from_numpy(seen)[None]).argmax())
            seen, _, _ = grove.step(action)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    log, grove, imitator = Log(np.random.default_rng(0)), Grove(0), Imitator()
    loader = DataLoader(log, batch_size=BATCH, shuffle=True, drop_last=True)
    start = time.perf_counter()
    for _ in range(EPOCHS):
        imitator.fit(log.batches() if FIXED else loader)
        imitator.drive(grove, 100)
    print(f"env_steps={EPOCHS * 100} updates={imitator.updates} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
