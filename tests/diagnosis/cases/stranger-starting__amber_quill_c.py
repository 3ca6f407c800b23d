"""Evolution strategies on Pendulum: a pool of workers scores mirrored perturbations of one policy."""
import multiprocessing as mp
import os
import time

import gymnasium as gym
import numpy as np

FIXED = os.environ.get("FIXED") == "1"

SEED = 3
ENV_ID = "Pendulum-v1"
GENERATIONS = 15
POPULATION = 32
WORKERS = 2
CHUNK = 2
TASKS_PER_WORKER = None if FIXED else 16

OBS, HIDDEN, ACT = 3, 16, 1
SIGMA = 0.08
LR = 0.05
SIZE = OBS * HIDDEN + HIDDEN + HIDDEN * ACT + ACT

_worker = {}


def init_worker(env_id):
    _worker["env"] = gym.make(env_id)


def unflatten(theta):
    a = OBS * HIDDEN
    b = a + HIDDEN
    c = b + HIDDEN * ACT
    return theta[:a].reshape(OBS, HIDDEN), theta[a:b], theta[b:c].reshape(HIDDEN, ACT), theta[c:]


def score(job):
    """Plays one episode with the given parameters; returns its return and length."""
    theta, seed = job
    env = _worker["env"]
    w1, b1, w2, b2 = unflatten(theta)
    obs, _ = env.reset(seed=seed)
    total, steps, done = 0.0, 0, False
    while not done:
        action = 2.0 * np.tanh(np.tanh(obs @ w1 + b1) @ w2 + b2)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        steps += 1
        done = terminated or truncated
    return total, steps


def ranks(values):
    """Centred ranks in [-0.5, 0.5]."""
    out = np.empty(len(values))
    out[np.argsort(values)] = np.arange(len(values))
    return out / (len(values) - 1) - 0.5


class Adam:
    def __init__(self, size, lr):
        self.lr, self.t = lr, 0
        self.m, self.v = np.zeros(size), np.zeros(size)

    def step(self, grad):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * grad
        self.v = 0.999 * self.v + 0.001 * grad**2
        m = self.m / (1 - 0.9**self.t)
        v = self.v / (1 - 0.999**self.t)
        return self.lr * m / (np.sqrt(v) + 1e-8)


class Evolution:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.theta = self.rng.normal(0.0, 0.3, SIZE)
        self.adam = Adam(SIZE, LR)
        context = mp.get_context("spawn")
        self.pool = context.Pool(WORKERS, init_worker, (ENV_ID,), TASKS_PER_WORKER)

    def evaluate(self, thetas, seed):
        results = self.pool.map(score, [(theta, seed) for theta in thetas], chunksize=CHUNK)
        returns, lengths = zip(*results)
        return np.array(returns), sum(lengths)

    def generation(self, index):
        noise = self.rng.standard_normal((POPULATION // 2, SIZE))
        noise = np.concatenate((noise, -noise))
        returns, steps = self.evaluate(self.theta + SIGMA * noise, seed=1000 + index)
        grad = ranks(returns) @ noise / (POPULATION * SIGMA)
        self.theta = self.theta + self.adam.step(grad)
        return returns.mean(), steps

    def close(self):
        self.pool.close()
        self.pool.join()


def main():
    evolution = Evolution(SEED)
    first, _ = evolution.evaluate([evolution.theta] * 4, seed=7)
    print(f"before training: return {first.mean():.1f}")

    env_steps = updates = 0
    history = []
    start = time.perf_counter()
    for index in range(GENERATIONS):
        mean, steps = evolution.generation(index)
        history.append(mean)
        env_steps += steps
        updates += 1
    seconds = time.perf_counter() - start

    evolution.close()
    print(f"mean return: first {history[0]:.1f} last {history[-1]:.1f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
