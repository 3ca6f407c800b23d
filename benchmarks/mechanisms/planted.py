"""A training loop whose every second has a known mechanism; it takes its own times, part by part.

python planted.py SECONDS MIX    (MIX: the parts in turns, e.g. idcmwgs; a letter twice is done twice)
"""

import gc
import json
import multiprocessing
import random
import sys
import time

import gymnasium as gym
import numpy as np
import torch

torch.set_num_threads(1)


class Still(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 0.0, False, False, {}


def interpret():
    total = 0
    names = {}
    for i in range(12_000):
        total += i * i % 7
        names[i & 63] = total
    return len(names)


SMALL = torch.ones(4)


def dispatch():
    x = SMALL
    for _ in range(500):
        x = (x + 1.0) * 0.5
        x = torch.clamp(x, -1.0, 1.0)
    return x


MATRIX = torch.randn(500, 500)
WAVES = np.linspace(0.0, 1.0, 120_000)


def compute():
    torch.mm(MATRIX, MATRIX)
    return np.sin(WAVES)


BYTES = torch.ones(1_500_000)
ROWS = [np.ones(100_000, np.float32) for _ in range(8)]


def move():
    a = BYTES.clone()
    b = np.concatenate(ROWS)
    return a, b.astype(np.float64)


def wait():
    time.sleep(0.003)


GRAPH = [{"self": None} for _ in range(60_000)]
for item in GRAPH:
    item["self"] = item


def collect():
    gc.collect()


def start():
    """Answers what is left to wait for: the process's own end."""
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    return process


PARTS = {"i": interpret, "d": dispatch, "c": compute, "m": move, "w": wait, "g": collect, "s": start}


def main():
    seconds, mix = float(sys.argv[1]), sys.argv[2]
    draw = random.Random(1)
    env = Still()
    env.reset(seed=1)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    spent = dict.fromkeys(PARTS, 0.0)
    gc.disable()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        env.step(0)
        for letter in draw.sample(mix, len(mix)):
            begin = time.perf_counter()
            made = PARTS[letter]()
            spent[letter] += time.perf_counter() - begin
            if letter == "s":
                begin = time.perf_counter()
                made.join()
                spent["w"] += time.perf_counter() - begin
        begin = time.perf_counter()
        net(SMALL).sum().backward()
        optimizer.step()
        spent["d"] += time.perf_counter() - begin
    env.step(0)
    print("PLANTED", json.dumps({"spent": spent, "loop": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
