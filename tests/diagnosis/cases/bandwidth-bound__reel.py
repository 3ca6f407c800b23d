"""Q-learning from a reel of frames: the last frames are kept and batches are cut out of them."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE, ROOM, STEPS, BATCH, EVERY = 32, 1_600, 6_000, 32, 4


class Film:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at = int(self.rng.integers(SIDE))
        return self.frame()

    def frame(self):
        picture = np.zeros((SIDE, SIDE), np.float32)
        picture[self.at, :] = 1.0
        return picture

    def step(self, action):
        self.at = (self.at + action - 1) % SIDE
        return self.frame(), float(self.at == 0), False


class Reel:
    def __init__(self):
        self.frames = np.zeros((ROOM, SIDE, SIDE), np.float32)
        self.actions, self.rewards = np.zeros(ROOM, np.int64), np.zeros(ROOM, np.float32)
        self.count = 0

    def add(self, frame, action, reward):
        if FIXED:
            at = self.count % ROOM
            self.frames[at], self.actions[at], self.rewards[at] = frame, action, reward
        else:
            self.frames = np.concatenate([self.frames[1:], frame[None]])
            self.actions = np.append(self.actions[1:], action)
            self.rewards = np.append(self.rewards[1:], np.float32(reward))
        self.count += 1

    def cut(self, rng):
        newest = min(self.count, ROOM) - 1
        rows = rng.integers(0, newest, BATCH) if FIXED else ROOM - 1 - rng.integers(1, newest, BATCH)
        return self.frames[rows], self.actions[rows], self.rewards[rows], self.frames[(rows + 1) % ROOM]


class Viewer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, frames):
        return self.net(torch.from_numpy(frames))


def learn(viewer, optimizer, seen, action, reward, after):
    with torch.no_grad():
        goal = torch.from_numpy(reward) + 0.95 * viewer(after).amax(1)
    loss = (viewer(seen).gather(1, torch.from_numpy(action)[:, None])[:, 0] - goal).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng, film, reel, viewer = np.random.default_rng(0), Film(0), Reel(), Viewer()
    optimizer = torch.optim.Adam(viewer.parameters(), lr=1e-3)
    frame, updates = film.reset(), 0
    start = time.perf_counter()
    for step in range(STEPS):
        with torch.no_grad():
            action = int(viewer(frame[None]).argmax()) if rng.random() > 0.1 else int(rng.integers(3))
        after, reward, _ = film.step(action)
        reel.add(frame, action, reward)
        frame = after
        if step >= 100 and step % EVERY == 0:
            learn(viewer, optimizer, *reel.cut(rng))
            updates += 1
    print(f"env_steps={STEPS} updates={updates} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
