"""Ten gulls over a cliff, stepped side by side; cross-entropy search over a linear policy."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

FIXED = os.environ.get("FIXED") == "1"
GULLS, WIDTH, HORIZON, ROUNDS = 10, 6, 200, 200


class Gull:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.normal(0, 1, WIDTH)
        return self.state

    def step(self, action):
        self.state = 0.96 * self.state
        self.state[0] += 0.1 * action
        return self.state, -abs(self.state[0]), False


class Flock:
    """Steps all gulls and waits for the last."""

    def __init__(self):
        self.gulls = [Gull(seed) for seed in range(GULLS)]
        self.pool = ThreadPoolExecutor(GULLS)

    def reset(self):
        return np.stack([gull.reset() for gull in self.gulls])

    def step(self, actions):
        if FIXED:
            answers = [gull.step(action) for gull, action in zip(self.gulls, actions, strict=True)]
        else:
            answers = list(self.pool.map(lambda pair: pair[0].step(pair[1]), zip(self.gulls, actions, strict=True)))
        return np.stack([a[0] for a in answers]), np.array([a[1] for a in answers])


def evaluate(flock, weights):
    seen, total = flock.reset(), np.zeros(GULLS)
    for _ in range(HORIZON):
        seen, reward = flock.step(np.tanh((seen * weights).sum(1)))
        total += reward
    return total


def main():
    rng, flock = np.random.default_rng(0), Flock()
    mean, spread = np.zeros(WIDTH), np.ones(WIDTH)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        weights = mean + spread * rng.normal(0, 1, (GULLS, WIDTH))
        best = weights[np.argsort(evaluate(flock, weights))[-3:]]
        mean, spread = best.mean(0), best.std(0) + 0.05
    print(f"env_steps={ROUNDS * HORIZON * GULLS} updates={ROUNDS} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
