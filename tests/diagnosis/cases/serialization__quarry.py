"""Double DQN on a small image-like mining grid."""
import os
import pickle
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE = 16


class MineGrid:
    """Walk on a grid, pick up ore, keep off the pits. Planes: walker, ore, pits."""

    MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.planes = np.zeros((3, SIDE, SIDE), np.uint8)
        self.planes[1:] = self.rng.random((2, SIDE, SIDE)) < np.array([0.15, 0.08])[:, None, None]
        self.pos = (SIDE // 2, SIDE // 2)
        self.planes[0][self.pos] = 1
        self.t = 0
        return self.planes.copy()

    def step(self, action):
        dy, dx = self.MOVES[action]
        self.planes[0][self.pos] = 0
        self.pos = ((self.pos[0] + dy) % SIDE, (self.pos[1] + dx) % SIDE)
        self.planes[0][self.pos] = 1
        reward = float(self.planes[1][self.pos])
        self.planes[1][self.pos] = 0
        self.t += 1
        fell = bool(self.planes[2][self.pos])
        return self.planes.copy(), reward - float(fell), fell or self.t >= 100


class CompactReplay:
    def __init__(self, size):
        self.size, self.items, self.at = size, [], 0

    def __len__(self):
        return len(self.items)

    def add(self, *transition):
        blob = zlib.compress(pickle.dumps(transition))
        if len(self.items) < self.size:
            self.items.append(blob)
        else:
            self.items[self.at] = blob
        self.at = (self.at + 1) % self.size

    def sample(self, rng, n):
        picks = rng.integers(len(self.items), size=n)
        rows = [pickle.loads(zlib.decompress(self.items[i])) for i in picks]
        obs, act, rew, nxt, done = zip(*rows)
        return (np.stack(obs), np.array(act), np.array(rew, np.float32), np.stack(nxt),
                np.array(done, np.float32))


class ArrayReplay:
    def __init__(self, size):
        self.size, self.at, self.n = size, 0, 0
        self.obs = np.zeros((size, 3, SIDE, SIDE), np.uint8)
        self.nxt = np.zeros_like(self.obs)
        self.act = np.zeros(size, np.int64)
        self.rew, self.done = np.zeros(size, np.float32), np.zeros(size, np.float32)

    def __len__(self):
        return self.n

    def add(self, obs, act, rew, nxt, done):
        i = self.at
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = obs, act, rew, nxt, done
        self.at = (i + 1) % self.size
        self.n = min(self.n + 1, self.size)

    def sample(self, rng, n):
        i = rng.integers(self.n, size=n)
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i]


def make_net():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 64), nn.ReLU(), nn.Linear(64, 4))


def as_input(planes):
    return torch.from_numpy(planes).float()


def train(total=5200, warm=200, batch=96, gamma=0.97):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(1)
    env = MineGrid(2)
    q, target = make_net(), make_net()
    target.load_state_dict(q.state_dict())
    opt = torch.optim.Adam(q.parameters(), lr=5e-4)
    replay = (ArrayReplay if FIXED else CompactReplay)(4000)
    updates = 0
    obs = env.reset()
    start = time.perf_counter()
    for step in range(total):
        if rng.random() < max(0.05, 1 - step / 2500):
            act = int(rng.integers(4))
        else:
            with torch.no_grad():
                act = int(q(as_input(obs[None])).argmax())
        nxt, rew, done = env.step(act)
        replay.add(obs, act, rew, nxt, done)
        obs = env.reset() if done else nxt
        if step >= warm and step % 3 == 0:
            o, a, r, n, d = replay.sample(rng, batch)
            n = as_input(n)
            with torch.no_grad():
                best = q(n).argmax(1, keepdim=True)
                goal = torch.from_numpy(r) + gamma * (1 - torch.from_numpy(d)) * target(n).gather(1, best)[:, 0]
            loss = F.smooth_l1_loss(q(as_input(o)).gather(1, torch.from_numpy(a)[:, None])[:, 0], goal)
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
            if updates % 250 == 0:
                target.load_state_dict(q.state_dict())
    print(f"env_steps={total} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    train()
