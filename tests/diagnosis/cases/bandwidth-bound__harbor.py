"""Q-learning from pixels on a falling-block game, starting from a folder of recorded play."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class Catch:
    """Several games at once, drawn as 48x48 frames; a paddle has to be under the block when it lands."""

    def __init__(self, n, rng, size=48):
        self.n, self.rng, self.size = n, rng, size
        self.row, self.col = rng.integers(0, size - 4, n), rng.integers(0, size - 4, n)
        self.paddle = np.full(n, size // 2)

    def frame(self):
        img = np.zeros((self.n, 2, self.size, self.size), np.uint8)
        for i in range(self.n):
            img[i, 0, self.row[i]:self.row[i] + 4, self.col[i]:self.col[i] + 4] = 255
            img[i, 1, -3:, self.paddle[i]:self.paddle[i] + 8] = 255
        return img

    def step(self, action):
        self.paddle = np.clip(self.paddle + (action - 1) * 3, 0, self.size - 8)
        self.row = self.row + 2
        landed = self.row >= self.size - 4
        hit = (self.col >= self.paddle - 3) & (self.col < self.paddle + 8)
        reward = np.where(landed, np.where(hit, 1.0, -1.0), 0.0).astype(np.float32)
        self.row = np.where(landed, 0, self.row)
        self.col = np.where(landed, self.rng.integers(0, self.size - 4, self.n), self.col)
        return self.frame(), reward, landed


class Memory:
    names = ("obs", "action", "reward", "nxt", "done")

    def __init__(self, capacity):
        self.capacity, self.data, self.cursor = capacity, None, 0

    def extend(self, **rows):
        if self.data is None:
            self.data = {k: rows[k].copy() for k in self.names}
            return
        if FIXED:
            n = len(rows["action"])
            where = (self.cursor + np.arange(n)) % self.capacity
            for k in self.names:
                self.data[k][where] = rows[k]
            self.cursor = (self.cursor + n) % self.capacity
            return
        for k in self.names:
            self.data[k] = np.concatenate([self.data[k], rows[k]])[-self.capacity:]

    def sample(self, rng, n):
        pick = rng.integers(len(self.data["action"]), size=n)
        return {k: torch.from_numpy(self.data[k][pick]) for k in self.names}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 8, 6, 4), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        return self.head(self.body(x.float() / 255))


def record(env, rng, length):
    """Random play, the way the recorded games were made."""
    rows, obs = [], env.frame()
    for _ in range(length):
        action = rng.integers(3, size=env.n)
        nxt, reward, done = env.step(action)
        rows.append((obs, action, reward, nxt, done))
        obs = nxt
    return {k: np.concatenate(column) for k, column in zip(Memory.names, zip(*rows))}


def train(iterations=480, batch=64):
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env = Catch(8, rng)
    memory = Memory(capacity=4000)
    memory.extend(**record(env, rng, 500))
    net = Network()
    opt = torch.optim.Adam(net.parameters(), 5e-4)
    obs, updates = env.frame(), 0
    start = time.perf_counter()
    for it in range(iterations):
        with torch.no_grad():
            greedy = net(torch.from_numpy(obs)).argmax(1).numpy()
        action = np.where(rng.random(env.n) < 0.1, rng.integers(3, size=env.n), greedy)
        nxt, reward, done = env.step(action)
        memory.extend(obs=obs, action=action, reward=reward, nxt=nxt, done=done)
        obs = nxt
        for _ in range(2):
            b = memory.sample(rng, batch)
            with torch.no_grad():
                goal = b["reward"] + 0.97 * (~b["done"]) * net(b["nxt"]).max(1).values
            q = net(b["obs"]).gather(1, b["action"][:, None])[:, 0]
            loss = F.smooth_l1_loss(q, goal)
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    return iterations * env.n, updates, time.perf_counter() - start


if __name__ == "__main__":
    print("env_steps=%d updates=%d seconds=%.3f" % train())
