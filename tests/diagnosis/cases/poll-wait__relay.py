"""One thread acts, the main thread learns from what it hands over, a batch at a time."""

import os
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
BATCHES, ROWS, WIDTH = 220, 48, 10


class Track:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.normal(0, 1, WIDTH).astype(np.float32)
        self.age = 0
        return self.state

    def step(self, action):
        self.state = 0.95 * self.state
        self.state[action] += 0.1
        self.age += 1
        return self.state, float(-np.abs(self.state).sum()), self.age >= 100


class Runner(threading.Thread):
    def __init__(self, model, asked, box):
        super().__init__(daemon=True)
        self.model, self.asked, self.box, self.track = model, asked, box, Track(0)

    def run(self):
        rng = np.random.default_rng(0)
        seen = self.track.reset()
        for _ in range(BATCHES):
            self.asked.get()
            rows = []
            for _ in range(ROWS):
                with torch.no_grad():
                    best = int(self.model(torch.from_numpy(seen)).argmax())
                action = best if rng.random() > 0.2 else int(rng.integers(3))
                after, reward, end = self.track.step(action)
                rows.append((seen, action, reward))
                seen = self.track.reset() if end else after
            self.box.put(rows)


class Coach:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.asked, self.box = queue.Queue(), queue.Queue()
        self.runner = Runner(self.model, self.asked, self.box)

    def receive(self):
        self.asked.put(True)
        if FIXED:
            return self.box.get()
        while self.box.empty():
            time.sleep(0.02)
        return self.box.get()

    def learn(self, rows):
        seen = torch.from_numpy(np.stack([r[0] for r in rows]))
        action = torch.from_numpy(np.array([r[1] for r in rows]))
        reward = torch.from_numpy(np.array([r[2] for r in rows], np.float32))
        for _ in range(10):
            guess = self.model(seen).gather(1, action[:, None])[:, 0]
            loss = (guess - reward).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def train(self):
        self.runner.start()
        for _ in range(BATCHES):
            self.learn(self.receive())


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    coach = Coach()
    start = time.perf_counter()
    coach.train()
    print(f"env_steps={BATCHES * ROWS} updates={BATCHES * 10} seconds={time.perf_counter() - start:.2f}")
