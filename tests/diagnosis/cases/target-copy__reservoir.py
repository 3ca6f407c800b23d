"""Q-learning with a frozen copy of the network for the targets: releasing water from a reservoir."""

import copy
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Reservoir:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.level, self.month = float(self.rng.uniform(0.2, 0.8)), int(self.rng.integers(12))
        self.age = 0
        return self.view()

    def view(self):
        a = 2 * np.pi * self.month / 12
        return np.array([self.level, np.sin(a), np.cos(a)], np.float32)

    def step(self, gate):
        release = 0.05 * gate
        rain = max(0.0, 0.1 + 0.08 * np.sin(2 * np.pi * self.month / 12) + self.rng.normal(0, 0.03))
        self.level += rain - release
        spill, short = max(self.level - 1, 0.0), max(0.2 - self.level, 0.0)
        self.level = min(max(self.level, 0.0), 1.0)
        self.month = (self.month + 1) % 12
        self.age += 1
        return self.view(), release - 3 * spill - 5 * short, self.age >= 48


class QAgent:
    """Standard DQN; the target network follows the online one."""

    def __init__(self, sync_every=1):
        self.q = nn.Sequential(
            nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
        )
        self.frozen = copy.deepcopy(self.q)
        self.opt = torch.optim.SGD(self.q.parameters(), lr=0.01, momentum=0.9)
        self.sync_every = sync_every
        self.updates = 0

    def __call__(self, state):
        with torch.no_grad():
            return int(self.q(torch.from_numpy(state)).argmax())

    def sync(self):
        self.frozen = copy.deepcopy(self.q)
        self.frozen.eval()
        for p in self.frozen.parameters():
            p.requires_grad = False

    def train_on(self, s, a, r, s2, d):
        target = r + 0.97 * (1 - d) * self.frozen(s2).max(1)[0]
        loss = nn.functional.mse_loss(self.q(s).gather(1, a[:, None])[:, 0], target.detach())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % self.sync_every == 0:
            self.sync()


def main(steps=5000):
    torch.set_num_threads(1)
    torch.manual_seed(15)
    rng = np.random.default_rng(15)
    t0 = time.time()
    lake, agent = Reservoir(rng), QAgent(sync_every=100 if FIXED else 1)
    S, S2 = np.zeros((steps, 3), np.float32), np.zeros((steps, 3), np.float32)
    A, R, D = np.zeros(steps, np.int64), np.zeros(steps, np.float32), np.zeros(steps, np.float32)
    s = lake.reset()
    for t in range(steps):
        a = int(rng.integers(5)) if rng.random() < 0.15 else agent(s)
        s2, r, d = lake.step(a)
        S[t], A[t], R[t], S2[t], D[t] = s, a, r, s2, d
        s = lake.reset() if d else s2
        if t > 100:
            i = rng.integers(0, t, 32)
            agent.train_on(*(torch.from_numpy(x[i]) for x in (S, A, R, S2, D)))
    print(f"env_steps={steps} updates={agent.updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
