"""Evolution strategies on a hopping toy, the population evaluated by a pool of processes."""

import multiprocessing as mp
import os
import time

import numpy as np

FIXED = os.environ.get("FIXED") == "1"
SHAPES = [(5, 16), (16, 2)]
SIZE = sum(a * b for a, b in SHAPES)


def unpack(theta):
    cut = SHAPES[0][0] * SHAPES[0][1]
    return theta[:cut].reshape(SHAPES[0]), theta[cut:].reshape(SHAPES[1])


def hop(theta, seed, length=60):
    """Return of one episode, and its length."""
    w1, w2 = unpack(theta)
    rng = np.random.default_rng(seed)
    y, v, x, lean = 1.0, 0.0, 0.0, rng.uniform(-0.1, 0.1)
    total = 0.0
    for t in range(length):
        thrust, tilt = np.tanh(np.tanh(np.array([y, v, lean, np.sin(t), 1.0]) @ w1) @ w2)
        v += 0.05 * (-9.8 * (y > 0) + (18 * max(thrust, 0.0) if y < 0.4 else 0.0))
        y = max(y + 0.05 * v, 0.0)
        lean += 0.05 * tilt + rng.normal(0, 0.005)
        x += 0.05 * np.sin(lean)
        total += x + 0.1 * y - abs(lean)
    return total, length


def score(job):
    theta, seed = job
    return hop(theta, seed)


class EvolutionStrategy:
    def __init__(self, pairs=16, sigma=0.1, lr=0.05, workers=2):
        self.pairs, self.sigma, self.lr, self.workers = pairs, sigma, lr, workers
        self.rng = np.random.default_rng(1)
        self.theta = self.rng.normal(0, 0.3, SIZE)
        self.context = mp.get_context("fork")
        self.pool = self.context.Pool(workers) if FIXED else None

    def evaluate(self, jobs):
        if self.pool is not None:
            return self.pool.map(score, jobs, chunksize=8)
        with self.context.Pool(self.workers) as pool:
            return pool.map(score, jobs, chunksize=8)

    def generation(self, number):
        eps = self.rng.normal(size=(self.pairs, SIZE))
        candidates = np.concatenate([self.theta + self.sigma * eps, self.theta - self.sigma * eps])
        results = self.evaluate([(theta, number) for theta in candidates])
        fitness = np.array([r[0] for r in results])
        ranks = fitness.argsort().argsort() / (len(fitness) - 1) - 0.5
        self.theta += self.lr / (self.pairs * self.sigma) * (ranks[: self.pairs] - ranks[self.pairs :]) @ eps
        return sum(r[1] for r in results)


def main(generations=110):
    start = time.time()
    strategy = EvolutionStrategy()
    steps = sum(strategy.generation(i) for i in range(generations))
    print(f"env_steps={steps} updates={generations} seconds={time.time() - start:.2f}")
    if strategy.pool:
        strategy.pool.terminate()


if __name__ == "__main__":
    main()
