"""Q-learning on small pictures; the memory holds every transition in as few bytes as it can."""

import os
import pickle
import random
import time
import zlib

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE, STEPS, BATCH, EVERY = 20, 15_000, 32, 4


class Vault:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.age = self.rng.integers(0, SIDE, 2), 0
        return self.draw()

    def draw(self):
        picture = self.wall.copy() if hasattr(self, "wall") else self.rng.integers(0, 60, (SIDE, SIDE), np.uint8)
        self.wall = picture.copy()
        picture[self.at[0], self.at[1]] = 255
        return picture

    def step(self, action):
        self.at = (self.at + ((0, 1), (1, 0), (0, -1), (-1, 0))[action]) % SIDE
        self.age += 1
        return self.draw(), float(self.at[0] == 0), self.age >= 100


class Rows:
    def __init__(self, size):
        self.rows, self.size, self.count = [None] * size, size, 0

    def add(self, row):
        self.rows[self.count % self.size] = row if FIXED else zlib.compress(pickle.dumps(row), 6)
        self.count += 1

    def draw(self, n):
        chosen = random.sample(self.rows[: min(self.count, self.size)], n)
        if not FIXED:
            chosen = [pickle.loads(zlib.decompress(packed)) for packed in chosen]
        return [np.stack(column) for column in zip(*chosen, strict=True)]


class Agent:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(SIDE * SIDE, 128), nn.ReLU(), nn.Linear(128, 4))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.updates = 0

    def view(self, pictures):
        return torch.from_numpy(pictures.reshape(len(pictures), -1).astype(np.float32) / 255)

    def act(self, picture):
        if random.random() < 0.2:
            return random.randrange(4)
        with torch.no_grad():
            return int(self.net(self.view(picture[None])).argmax())

    def learn(self, seen, action, reward, after, end):
        with torch.no_grad():
            goal = torch.from_numpy(reward + 0.97 * (1 - end)).float() * self.net(self.view(after)).amax(1)
        guess = self.net(self.view(seen)).gather(1, torch.from_numpy(action)[:, None])[:, 0]
        loss = (guess - goal).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    random.seed(0)
    vault, rows, agent = Vault(0), Rows(2_000), Agent()
    picture = vault.reset()
    start = time.perf_counter()
    for step in range(STEPS):
        action = agent.act(picture)
        after, reward, end = vault.step(action)
        rows.add((picture, action, reward, after, float(end)))
        picture = vault.reset() if end else after
        if step >= 200 and step % EVERY == 0:
            agent.learn(*rows.draw(BATCH))
    print(f"env_steps={STEPS} updates={agent.updates} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
