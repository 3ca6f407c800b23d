"""MAP-Elites over controllers of a point robot in a walled room.

Children are screened by a small surrogate and evaluated by a pool of processes;
the archive keeps the thriftiest controller for every place the robot can end in.
"""
import math
import multiprocessing as mp
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
BATCHES = 30
CHILDREN = 32
HIDDEN = 24
DIM = 6 * HIDDEN + HIDDEN + HIDDEN * 2 + 2
WALLS = ((0.3, 0.0, 0.35, 0.6), (0.65, 0.4, 0.7, 1.0))


class Room:
    """Deterministic episode of a point mass with drag in the unit square."""

    def __init__(self, horizon=250):
        self.horizon = horizon

    def rollout(self, theta):
        w1, b1, w2, b2 = np.split(theta, [6 * HIDDEN, 7 * HIDDEN, 9 * HIDDEN])
        w1, w2 = w1.reshape(6, HIDDEN), w2.reshape(HIDDEN, 2)
        x, y, vx, vy, energy = 0.1, 0.1, 0.0, 0.0, 0.0
        for t in range(self.horizon):
            phase = 0.05 * t
            obs = np.array([2 * x - 1, 2 * y - 1, 20 * vx, 20 * vy, math.sin(phase), math.cos(phase)])
            ax, ay = np.tanh(np.tanh(obs @ w1 + b1) @ w2 + b2).tolist()
            vx, vy = 0.95 * vx + 0.002 * ax, 0.95 * vy + 0.002 * ay
            nx, ny = min(max(x + vx, 0.0), 1.0), min(max(y + vy, 0.0), 1.0)
            if any(l < nx < r and b < ny < t_ for l, b, r, t_ in WALLS):
                vx = vy = 0.0
            else:
                x, y = nx, ny
            energy += ax * ax + ay * ay
        return -energy / self.horizon, x, y


class Surrogate:
    """Predicts the fitness of a parameter vector."""

    def __init__(self):
        self.net = nn.Sequential(nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.inputs, self.targets = [], []
        self.updates = 0

    @torch.no_grad()
    def screen(self, candidates, count):
        score = self.net(torch.as_tensor(candidates, dtype=torch.float32)).squeeze(1)
        return candidates[score.topk(count).indices.numpy()]

    def fit(self, thetas, fitness, steps=15):
        self.inputs.append(torch.as_tensor(thetas, dtype=torch.float32))
        self.targets.append(torch.as_tensor(fitness, dtype=torch.float32))
        x, y = torch.cat(self.inputs[-20:]), torch.cat(self.targets[-20:])
        for _ in range(steps):
            pick = torch.randint(len(x), (64,))
            loss = (self.net(x[pick]).squeeze(1) - y[pick]).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.updates += 1


class MapElites:
    def __init__(self, room, cells, rng):
        self.room, self.cells, self.rng = room, cells, rng
        self.theta = np.zeros((cells, cells, DIM))
        self.fitness = np.full((cells, cells), -np.inf)

    def evaluate(self, theta):
        return self.room.rollout(theta)

    def propose(self, count):
        rows, cols = np.nonzero(np.isfinite(self.fitness))
        if len(rows) == 0:
            return self.rng.standard_normal((count, DIM))
        a, b = self.rng.integers(len(rows), size=(2, count))
        first, second = self.theta[rows[a], cols[a]], self.theta[rows[b], cols[b]]
        line = 0.2 * self.rng.standard_normal((count, 1)) * (second - first)
        return first + line + 0.1 * self.rng.standard_normal((count, DIM))

    def insert(self, theta, fitness, x, y):
        cell = min(int(x * self.cells), self.cells - 1), min(int(y * self.cells), self.cells - 1)
        if fitness > self.fitness[cell]:
            self.fitness[cell] = fitness
            self.theta[cell] = theta

    def generation(self, pool, surrogate):
        children = surrogate.screen(self.propose(4 * CHILDREN), CHILDREN)
        task = self.room.rollout if FIXED else self.evaluate
        results = pool.map(task, children)
        for theta, result in zip(children, results):
            self.insert(theta, *result)
        surrogate.fit(children, [r[0] for r in results])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    search = MapElites(Room(), 64, np.random.default_rng(1))
    surrogate = Surrogate()
    steps = 0
    with mp.get_context("fork").Pool(2) as pool:
        pool.map(abs, range(8))
        start = time.perf_counter()
        for _ in range(BATCHES):
            search.generation(pool, surrogate)
            steps += CHILDREN * search.room.horizon
        seconds = time.perf_counter() - start
        pool.close()
        pool.join()
    print(f"filled cells {int(np.isfinite(search.fitness).sum())}")
    print(f"env_steps={steps} updates={surrogate.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
