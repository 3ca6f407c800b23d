"""CMA-ES on the weights of a small neural controller for cart-pole swing-up.

The whole population is simulated in lockstep, one cart per candidate.
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"
GENERATIONS = 60
HORIZON = 400
HIDDEN = 16
OBS = 5
DIM = OBS * HIDDEN + HIDDEN + HIDDEN + 1


class CartSwing:
    """Cart-pole that starts hanging down; state arrays hold one entry per cart."""

    def __init__(self, count, rng):
        self.count = count
        self.rng = rng

    def reset(self):
        self.x = np.zeros(self.count)
        self.xd = np.zeros(self.count)
        self.th = np.full(self.count, np.pi) + 0.05 * self.rng.standard_normal()
        self.thd = np.zeros(self.count)
        return self.observe()

    def observe(self):
        cols = [self.x, self.xd, np.cos(self.th), np.sin(self.th), 0.3 * self.thd]
        return np.stack(cols, axis=1).astype(np.float32)

    def step(self, push):
        sin, cos = np.sin(self.th), np.cos(self.th)
        temp = (10.0 * push + 0.05 * self.thd**2 * sin) / 1.1
        thacc = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        xacc = temp - 0.05 * thacc * cos / 1.1
        self.xd = self.xd + 0.02 * xacc
        self.x = self.x + 0.02 * self.xd
        self.thd = np.clip(self.thd + 0.02 * thacc, -12.0, 12.0)
        self.th = self.th + 0.02 * self.thd
        self.xd[np.abs(self.x) > 2.4] = 0.0
        self.x = np.clip(self.x, -2.4, 2.4)
        return self.observe(), np.cos(self.th) - 0.05 * self.x**2


class CMA:
    def __init__(self, dim, sigma, rng):
        self.dim, self.sigma, self.rng = dim, sigma, rng
        self.size = 4 + int(3 * np.log(dim))
        self.parents = self.size // 2
        w = np.log(self.parents + 0.5) - np.log(np.arange(1, self.parents + 1))
        self.weights = w / w.sum()
        mueff = 1.0 / np.sum(self.weights**2)
        self.mueff = mueff
        self.cc = (4 + mueff / dim) / (dim + 4 + 2 * mueff / dim)
        self.cs = (mueff + 2) / (dim + mueff + 5)
        self.c1 = 2 / ((dim + 1.3) ** 2 + mueff)
        self.cmu = min(1 - self.c1, 2 * (mueff - 2 + 1 / mueff) / ((dim + 2) ** 2 + mueff))
        self.damp = 1 + 2 * max(0.0, np.sqrt((mueff - 1) / (dim + 1)) - 1) + self.cs
        self.chi = np.sqrt(dim) * (1 - 1 / (4 * dim) + 1 / (21 * dim**2))
        self.mean = 0.1 * rng.standard_normal(dim)
        self.cov = np.eye(dim)
        self.pc = np.zeros(dim)
        self.ps = np.zeros(dim)

    def ask(self):
        zero = np.zeros(self.dim)
        if FIXED:
            self.moves = self.rng.multivariate_normal(zero, self.cov, size=self.size)
        else:
            self.moves = np.stack([self.rng.multivariate_normal(zero, self.cov)
                                   for _ in range(self.size)])
        return self.mean + self.sigma * self.moves

    def tell(self, fitness):
        best = self.moves[np.argsort(-fitness)[: self.parents]]
        shift = self.weights @ best
        self.mean = self.mean + self.sigma * shift
        val, vec = np.linalg.eigh(self.cov)
        white = vec @ ((vec.T @ shift) / np.sqrt(np.maximum(val, 1e-12)))
        self.ps = (1 - self.cs) * self.ps + np.sqrt(self.cs * (2 - self.cs) * self.mueff) * white
        length = np.linalg.norm(self.ps)
        keep = float(length < (1.4 + 2 / (self.dim + 1)) * self.chi)
        self.pc = (1 - self.cc) * self.pc + keep * np.sqrt(self.cc * (2 - self.cc) * self.mueff) * shift
        cov = (1 - self.c1 - self.cmu) * self.cov + self.c1 * np.outer(self.pc, self.pc)
        cov += self.cmu * (best.T * self.weights) @ best
        self.cov = (cov + cov.T) / 2
        self.sigma *= float(np.exp(self.cs / self.damp * (length / self.chi - 1)))


@torch.no_grad()
def rollout(env, population):
    """Return of every candidate of the population over one episode."""
    n = len(population)
    flat = torch.as_tensor(population, dtype=torch.float32)
    w1, b1, w2, b2 = flat.split([OBS * HIDDEN, HIDDEN, HIDDEN, 1], dim=1)
    w1, b1 = w1.reshape(n, OBS, HIDDEN), b1.reshape(n, 1, HIDDEN)
    w2, b2 = w2.reshape(n, HIDDEN, 1), b2.reshape(n, 1, 1)
    total = np.zeros(n)
    obs = env.reset()
    for _ in range(HORIZON):
        hidden = torch.tanh(torch.baddbmm(b1, torch.from_numpy(obs).unsqueeze(1), w1))
        push = torch.tanh(torch.baddbmm(b2, hidden, w2)).view(n).numpy()
        obs, reward = env.step(push)
        total += reward
    return total


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    strategy = CMA(DIM, 0.5, rng)
    env = CartSwing(strategy.size, rng)
    best = -np.inf
    steps = 0
    start = time.perf_counter()
    for _ in range(GENERATIONS):
        population = strategy.ask()
        fitness = rollout(env, population)
        strategy.tell(fitness)
        best = max(best, float(fitness.max()))
        steps += strategy.size * HORIZON
    seconds = time.perf_counter() - start
    print(f"best return {best:.1f} sigma {strategy.sigma:.3f}")
    print(f"env_steps={steps} updates={GENERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
