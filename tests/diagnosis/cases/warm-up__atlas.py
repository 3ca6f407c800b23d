"""Q-learning for a courier on a street map; distances between all corners are looked up in an atlas."""

import os
import random
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE = 25


class Atlas:
    """Shortest ways between all pairs of corners, made when first needed."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.n = SIDE * SIDE
        self.roads = {i: [] for i in range(self.n)}
        for i in range(self.n):
            for j in ((i + 1) if (i + 1) % SIDE else None, i + SIDE if i + SIDE < self.n else None):
                if j is not None:
                    length = rng.randint(1, 9)
                    self.roads[i].append((j, length))
                    self.roads[j].append((i, length))
        self.table = None

    def _survey(self):
        table = np.full((self.n, self.n), 1e6, np.float32)
        np.fill_diagonal(table, 0)
        for i, ways in self.roads.items():
            for j, length in ways:
                table[i, j] = length
        if FIXED:
            for k in range(self.n):
                np.minimum(table, table[:, k, None] + table[k], out=table)
            return table
        rows = table.tolist()
        for via in rows:
            k = via.index(0.0)
            for row in rows:
                first = row[k]
                for j in range(self.n):
                    if first + via[j] < row[j]:
                        row[j] = first + via[j]
        return np.array(rows, np.float32)

    def distance(self, i, j):
        if self.table is None:
            self.table = self._survey()
        return float(self.table[i, j])


class Courier:
    def __init__(self, rng, atlas):
        self.rng, self.atlas = rng, atlas

    def reset(self):
        self.at = int(self.rng.integers(self.atlas.n))
        self.offers = self.rng.integers(0, self.atlas.n, 3)
        self.left = 20
        return self.obs()

    def obs(self):
        ways = [self.atlas.distance(self.at, int(j)) / 100 for j in self.offers]
        return np.array([*ways, *(self.offers / self.atlas.n), self.left / 20], np.float32)

    def step(self, k):
        goal = int(self.offers[k])
        reward = 1.0 - self.atlas.distance(self.at, goal) / 50
        self.at = goal
        self.offers = self.rng.integers(0, self.atlas.n, 3)
        self.left -= 1
        return self.obs(), reward, self.left == 0


def main(steps=9000):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    courier = Courier(rng, Atlas(3))
    q = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 3))
    opt = torch.optim.Adam(q.parameters(), lr=1e-3)
    rows = np.zeros((steps, 17), np.float32)
    t0 = time.time()
    s = courier.reset()
    updates = 0
    for t in range(steps):
        with torch.no_grad():
            a = int(rng.integers(3)) if rng.random() < 0.2 else int(q(torch.from_numpy(s)).argmax())
        s2, r, d = courier.step(a)
        rows[t] = [*s, a, r, *s2, d]
        s = courier.reset() if d else s2
        if t % 2 and t > 100:
            b = torch.from_numpy(rows[rng.integers(0, t + 1, 64)])
            with torch.no_grad():
                y = b[:, 8] + 0.9 * (1 - b[:, 16]) * q(b[:, 9:16]).amax(1)
            loss = (q(b[:, :7]).gather(1, b[:, 7:8].long())[:, 0] - y).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
