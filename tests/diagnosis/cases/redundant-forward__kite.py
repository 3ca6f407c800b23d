"""Q-learning from a large target network, several gradient steps on each batch."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, BATCH, REPEATS, WIDTH = 1_600, 128, 6, 16


class Meadow:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.wind = self.rng.normal(0, 1, WIDTH).astype(np.float32)
        self.age = 0
        return self.wind

    def step(self, action):
        self.wind = 0.9 * self.wind
        self.wind[action] += 0.2
        self.age += 1
        return self.wind, float(self.wind.mean()), self.age == 100


class Memory:
    def __init__(self, size):
        self.seen, self.after = np.zeros((size, WIDTH), np.float32), np.zeros((size, WIDTH), np.float32)
        self.action, self.reward, self.end = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.count = 0

    def add(self, *row):
        for column, value in zip((self.seen, self.action, self.reward, self.after, self.end), row, strict=True):
            column[self.count % len(column)] = value
        self.count += 1

    def sample(self, rng):
        rows = rng.integers(0, min(self.count, len(self.seen)), BATCH)
        return [torch.from_numpy(c[rows]) for c in (self.seen, self.action, self.reward, self.after, self.end)]


def build(width):
    return nn.Sequential(nn.Linear(WIDTH, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


class Learner:
    def __init__(self):
        self.quick, self.target = build(64), build(768)
        self.optimizer = torch.optim.SGD(self.quick.parameters(), lr=1e-3)
        self.updates = 0

    def aim(self, reward, after, end):
        with torch.no_grad():
            return reward + 0.97 * (1 - end) * self.target(after).amax(1)

    def descend(self, seen, action, goal):
        loss = (self.quick(seen).gather(1, action[:, None])[:, 0] - goal).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1

    def learn(self, seen, action, reward, after, end):
        goal = self.aim(reward, after, end)
        for _ in range(REPEATS):
            if not FIXED:
                goal = self.aim(reward, after, end)
            self.descend(seen, action, goal)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    field, memory, learner = Meadow(1), Memory(5_000), Learner()
    seen = field.reset()
    start = time.perf_counter()
    for step in range(STEPS):
        action = int(rng.integers(4))
        after, reward, end = field.step(action)
        memory.add(seen, action, reward, after, end)
        seen = field.reset() if end else after
        if step > 200 and step % 4 == 0:
            learner.learn(*memory.sample(rng))
    print(f"env_steps={STEPS} updates={learner.updates} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
