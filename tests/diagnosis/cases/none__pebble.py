"""OpenAI-style evolution strategy on a batch of planar hoppers, all in numpy."""
import os
import tempfile
import time

import numpy as np

POP, EPISODE, GENERATIONS = 512, 120, 270
OBS, HID, ACT = 10, 32, 3
SIGMA, LR = 0.05, 0.02
SHAPES = [(OBS, HID), (HID,), (HID, ACT), (ACT,)]
SIZES = [int(np.prod(s)) for s in SHAPES]


class Hoppers:
    """One hopper per member of the population, stepped together."""

    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        mix = np.random.default_rng(0)
        self.drive = (mix.normal(size=(ACT, 4)) * 0.3).astype(np.float32)
        self.couple = (mix.normal(size=(4, 4)) * 0.2).astype(np.float32)

    def reset(self):
        start = self.rng.normal(0, 0.05, 4).astype(np.float32)
        self.q = np.repeat(start[None], self.n, 0)
        self.v = np.zeros_like(self.q)
        self.x = np.zeros(self.n, np.float32)
        self.t = 0
        return self.observe()

    def observe(self):
        clock = np.full((self.n, 2), (np.sin(0.3 * self.t), np.cos(0.3 * self.t)), np.float32)
        return np.concatenate([self.q, self.v, clock], 1)

    def step(self, action):
        force = action @ self.drive + np.sin(self.q) @ self.couple
        self.v = 0.92 * self.v + 0.1 * force - 0.05 * self.q
        self.q = self.q + 0.1 * self.v
        speed = np.tanh(self.v[:, 0] - self.v[:, 1])
        self.x += 0.1 * speed
        self.t += 1
        reward = speed - 0.01 * np.square(action).sum(1) - 0.1 * np.square(self.q).mean(1)
        return self.observe(), reward


def split(flat):
    """(n, params) -> the layers of n networks."""
    out, at = [], 0
    for shape, size in zip(SHAPES, SIZES):
        out.append(flat[:, at:at + size].reshape(-1, *shape))
        at += size
    return out


def act(layers, obs):
    w1, b1, w2, b2 = layers
    h = np.tanh(np.matmul(obs[:, None], w1)[:, 0] + b1)
    return np.tanh(np.matmul(h[:, None], w2)[:, 0] + b2)


def fitness(env, population):
    layers = split(population)
    obs, total = env.reset(), np.zeros(env.n, np.float32)
    for _ in range(EPISODE):
        obs, reward = env.step(act(layers, obs))
        total += reward
    return total


def centered_ranks(x):
    ranks = np.empty(len(x), np.float32)
    ranks[x.argsort()] = np.arange(len(x), dtype=np.float32)
    return ranks / (len(x) - 1) - 0.5


def main():
    rng = np.random.default_rng(7)
    env = Hoppers(POP, 7)
    theta = rng.normal(0, 0.1, sum(SIZES)).astype(np.float32)
    momentum = np.zeros_like(theta)
    folder = tempfile.mkdtemp()
    history = []
    start = time.perf_counter()
    for generation in range(GENERATIONS):
        half = rng.standard_normal((POP // 2, theta.size), dtype=np.float32)
        noise = np.concatenate([half, -half])
        scores = fitness(env, theta + SIGMA * noise)
        gradient = centered_ranks(scores) @ noise / (POP * SIGMA)
        momentum = 0.9 * momentum + 0.1 * gradient
        theta = theta + LR * momentum
        history.append(float(scores.mean()))
    seconds = time.perf_counter() - start
    np.save(os.path.join(folder, "theta.npy"), theta)
    print(f"env_steps={GENERATIONS * EPISODE * POP} updates={GENERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
