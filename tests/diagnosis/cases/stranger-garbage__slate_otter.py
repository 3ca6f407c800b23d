"""DAgger on CartPole: the learner drives, an expert labels, everything is aggregated."""
import gc
import os
import random
import resource
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED = 8
ROUNDS = 55
ROUND_STEPS = 120
UPDATES_PER_ROUND = 20
BATCH = 128
DEMOS = 80_000
CAPACITY = 84_000


def expert(obs):
    return int(0.02 * obs[0] + 0.05 * obs[1] + obs[2] + 0.4 * obs[3] > 0)


@dataclass(slots=True)
class Labelled:
    obs: np.ndarray
    label: int
    source: str
    step: int


class Aggregate:
    """All labelled states so far, oldest dropped first."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.items = []
        self.dropped = 0
        self.peak_mb = 0.0

    def add(self, item):
        self.items.append(item)

    def close_round(self):
        overflow = len(self.items) - self.capacity
        if overflow > 0:
            del self.items[:overflow]
            self.dropped += overflow
        self.note_memory()

    def note_memory(self):
        if not FIXED:
            gc.collect()
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        self.peak_mb = max(self.peak_mb, usage)

    def sample(self, n):
        chosen = random.sample(self.items, n)
        obs = torch.from_numpy(np.stack([item.obs for item in chosen]))
        return obs, torch.tensor([item.label for item in chosen])


def load_demos(store):
    env = gym.make("CartPole-v1").unwrapped
    obs, _ = env.reset(seed=SEED)
    for i in range(DEMOS):
        label = expert(obs)
        store.add(Labelled(obs, label, "expert", i))
        act = label if random.random() > 0.1 else 1 - label
        obs, _, terminated, _, _ = env.step(act)
        if terminated:
            obs, _ = env.reset()


class Dagger:
    def __init__(self, store):
        self.store = store
        self.env = gym.make("CartPole-v1")
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=1e-3)
        self.obs, _ = self.env.reset(seed=SEED + 1)
        self.steps = 0

    @torch.no_grad()
    def drive(self, beta):
        agreed = 0
        for _ in range(ROUND_STEPS):
            label = expert(self.obs)
            own = int(self.policy(torch.from_numpy(self.obs)).argmax())
            agreed += own == label
            self.store.add(Labelled(self.obs, label, "learner", self.steps))
            act = label if random.random() < beta else own
            self.obs, _, terminated, truncated, _ = self.env.step(act)
            self.steps += 1
            if terminated or truncated:
                self.obs, _ = self.env.reset()
        self.store.close_round()
        return agreed / ROUND_STEPS

    def fit(self):
        for _ in range(UPDATES_PER_ROUND):
            obs, label = self.store.sample(BATCH)
            loss = F.cross_entropy(self.policy(obs), label)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    random.seed(SEED)
    store = Aggregate(CAPACITY)
    load_demos(store)
    dagger = Dagger(store)
    updates = 0
    start = time.perf_counter()
    for i in range(ROUNDS):
        agreement = dagger.drive(beta=0.9 ** i)
        loss = dagger.fit()
        updates += UPDATES_PER_ROUND
        if i % 10 == 0:
            print(f"round {i} loss {loss:.4f} agreement {agreement:.2f} peak {store.peak_mb:.0f} MB")
    seconds = time.perf_counter() - start
    print(f"env_steps={dagger.steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
