"""CMA-ES with a full covariance on a swarm of simulated sliders: a small tanh controller, all candidates run side by side."""
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"

OBS, HIDDEN, ACT = 6, 12, 2
DIM = OBS * HIDDEN + HIDDEN + HIDDEN * ACT + ACT
POP = 32
EPISODES = 40
HORIZON = 90
GENERATIONS = 75


class Sliders:
    """Points in the plane with drag and a side wind must come to rest on a target."""

    def __init__(self, shape, rng):
        episodes = shape[1]
        self.place = torch.from_numpy(rng.uniform(-1, 1, (1, episodes, 2))).float().repeat(shape[0], 1, 1)
        self.goal = torch.from_numpy(rng.uniform(-1, 1, (1, episodes, 2))).float().repeat(shape[0], 1, 1)
        self.wind = torch.from_numpy(rng.normal(0, 0.1, (1, episodes, 2))).float()
        self.speed = torch.zeros_like(self.place)

    def observe(self):
        return torch.cat([self.goal - self.place, self.speed, self.place], -1)

    def step(self, push):
        self.speed = 0.9 * self.speed + 0.1 * (push + self.wind)
        self.place = self.place + 0.2 * self.speed
        return -(self.goal - self.place).pow(2).sum(-1) - 0.01 * push.pow(2).sum(-1)


class Controllers:
    """One weight vector per candidate, applied as a batch."""

    def __init__(self, vectors):
        w = torch.from_numpy(np.asarray(vectors)).float()
        sizes = [OBS * HIDDEN, HIDDEN, HIDDEN * ACT, ACT]
        w1, b1, w2, b2 = w.split(sizes, dim=1)
        self.w1, self.b1 = w1.view(-1, OBS, HIDDEN), b1[:, None]
        self.w2, self.b2 = w2.view(-1, HIDDEN, ACT), b2[:, None]

    def __call__(self, obs):
        hidden = torch.tanh(torch.baddbmm(self.b1, obs, self.w1))
        return torch.tanh(torch.baddbmm(self.b2, hidden, self.w2))


class Strategy:
    def __init__(self, dim, pop, sigma, seed):
        self.rng = np.random.default_rng(seed)
        self.dim, self.pop, self.sigma = dim, pop, sigma
        self.mean = np.zeros(dim)
        self.cov = np.eye(dim)
        self.path = np.zeros(dim)
        mu = pop // 2
        w = np.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
        self.weights = w / w.sum()
        self.mu_eff = 1.0 / (self.weights ** 2).sum()
        self.c1 = 2.0 / ((dim + 1.3) ** 2 + self.mu_eff)
        self.cmu = min(1 - self.c1, 2 * (self.mu_eff - 2 + 1 / self.mu_eff) / ((dim + 2) ** 2 + self.mu_eff))
        self.cc = 4.0 / (dim + 4)

    def ask(self):
        cov = self.sigma ** 2 * self.cov
        if FIXED:
            return self.rng.multivariate_normal(self.mean, cov, size=self.pop)
        return np.stack([self.rng.multivariate_normal(self.mean, cov) for _ in range(self.pop)])

    def tell(self, candidates, scores):
        best = candidates[np.argsort(-scores)[:len(self.weights)]]
        steps = (best - self.mean) / self.sigma
        drift = self.weights @ steps
        self.mean = self.mean + self.sigma * drift
        self.path = (1 - self.cc) * self.path + np.sqrt(self.cc * (2 - self.cc) * self.mu_eff) * drift
        spread = (steps * self.weights[:, None]).T @ steps
        self.cov = (1 - self.c1 - self.cmu) * self.cov + self.c1 * np.outer(self.path, self.path) + self.cmu * spread
        self.cov = (self.cov + self.cov.T) / 2
        self.sigma *= 0.997


@torch.no_grad()
def score(vectors, rng):
    swarm = Sliders((len(vectors), EPISODES), rng)
    control = Controllers(vectors)
    total = torch.zeros(len(vectors), EPISODES)
    for _ in range(HORIZON):
        total += swarm.step(control(swarm.observe()))
    return total.mean(1).numpy().astype(np.float64)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    strategy = Strategy(DIM, POP, sigma=0.5, seed=5)
    worlds = np.random.default_rng(6)
    steps = updates = 0
    start = time.perf_counter()
    for generation in range(GENERATIONS):
        candidates = strategy.ask()
        scores = score(candidates, worlds)
        strategy.tell(candidates, scores)
        steps += POP * EPISODES * HORIZON
        updates += 1
    seconds = time.perf_counter() - start
    print(f"best of the last generation {scores.max():.2f}, mean {scores.mean():.2f}")
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
