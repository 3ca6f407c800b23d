"""Linear Q-learning over tile features for a raft; the features are made new for every state."""

import math
import os
import time

import numpy as np

FIXED = os.environ.get("FIXED") == "1"
TILINGS, TILES, ACTIONS, STEPS = 24, 8, 3, 100_000
SHIFTS = np.arange(TILINGS) / TILINGS


class Raft:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.x, self.v, self.age = float(self.rng.uniform(-0.6, -0.4)), 0.0, 0
        return self.x, self.v

    def step(self, action):
        self.v = min(max(self.v + 0.001 * (action - 1) - 0.0025 * math.cos(3 * self.x), -0.07), 0.07)
        self.x = min(max(self.x + self.v, -1.2), 0.6)
        self.age += 1
        return (self.x, self.v), -1.0, self.x >= 0.5 or self.age >= 400


def list_tiles(x, v):
    if FIXED:
        a = np.minimum(((x + 1.2) / 1.8 * TILES + SHIFTS).astype(np.int64), TILES)
        b = np.minimum(((v + 0.07) / 0.14 * TILES + 3 * SHIFTS % 1).astype(np.int64), TILES)
        return np.arange(TILINGS) * (TILES + 1) ** 2 + a * (TILES + 1) + b
    chosen = []
    for tiling in range(TILINGS):
        shift = tiling / TILINGS
        a = b = 0
        for edge in range(1, TILES + 1):
            if (x + 1.2) / 1.8 * TILES + shift >= edge:
                a = edge
            if (v + 0.07) / 0.14 * TILES + 3 * shift % 1 >= edge:
                b = edge
        chosen.append(tiling * (TILES + 1) ** 2 + a * (TILES + 1) + b)
    return np.array(chosen)


class Table:
    def __init__(self):
        self.weights = np.zeros((TILINGS * (TILES + 1) ** 2, ACTIONS))

    def values(self, tiles):
        return self.weights[tiles].sum(0)

    def learn(self, tiles, action, error):
        self.weights[tiles, action] += 0.1 / TILINGS * error


def train():
    rng, raft, table = np.random.default_rng(5), Raft(5), Table()
    tiles = list_tiles(*raft.reset())
    values = table.values(tiles)
    for _ in range(STEPS):
        action = int(rng.integers(ACTIONS)) if rng.random() < 0.1 else int(values.argmax())
        state, reward, end = raft.step(action)
        after = list_tiles(*state)
        ahead = table.values(after)
        table.learn(tiles, action, reward + (0.0 if end else 0.99 * ahead.max()) - values[action])
        tiles, values = after, ahead
        if end:
            tiles = list_tiles(*raft.reset())
            values = table.values(tiles)


if __name__ == "__main__":
    start = time.perf_counter()
    train()
    print(f"env_steps={STEPS} updates={STEPS} seconds={time.perf_counter() - start:.2f}")
