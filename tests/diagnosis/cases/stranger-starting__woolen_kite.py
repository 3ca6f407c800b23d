"""Evolution strategies with antithetic noise on a planar docking task, every member flown from eight starts at once."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

PAIRS, GENERATIONS, STARTS, HORIZON, HIDDEN = 16, 18, 8, 50, 256
SIGMA, RATE, DECAY = 0.03, 0.02, 0.002


class Docking:
    """Small craft with inertia and side wind, to be brought to rest at the origin."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.place = rng.uniform(-1, 1, (STARTS, 2))
        self.speed = rng.normal(0, 0.1, (STARTS, 2))
        self.wind = rng.normal(0, 0.01, (STARTS, 2))

    def observe(self):
        return np.concatenate([self.place, self.speed, self.wind * 50], axis=1).astype(np.float32)

    def step(self, thrust):
        self.speed = 0.97 * self.speed + 0.05 * np.clip(thrust, -1, 1) + self.wind
        self.place = self.place + 0.1 * self.speed
        return -(np.abs(self.place).sum(1) + 0.1 * np.abs(self.speed).sum(1) + 0.01 * np.abs(thrust).sum(1))


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
                                    nn.Linear(HIDDEN, 2))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.orthogonal_(layer.weight, 1.0 if layer.out_features > 2 else 0.01)
                nn.init.zeros_(layer.bias)

    def forward(self, obs):
        return self.layers(obs)


def fly(pilot, seed):
    env, total = Docking(seed), 0.0
    with torch.no_grad():
        for _ in range(HORIZON):
            thrust = pilot(torch.from_numpy(env.observe())).numpy()
            total += float(env.step(thrust).mean())
    return total / HORIZON


class Evolution:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.pilot = Pilot()
        self.mean = parameters_to_vector(self.pilot.parameters()).detach().clone()
        self.momentum = torch.zeros_like(self.mean)

    def member(self, genes):
        pilot = self.pilot if FIXED else Pilot()
        vector_to_parameters(genes, pilot.parameters())
        return pilot

    def generation(self, seed):
        noise = torch.from_numpy(self.rng.standard_normal((PAIRS, len(self.mean)), dtype=np.float32))
        scores = np.zeros((PAIRS, 2))
        for i in range(PAIRS):
            for j, sign in enumerate((1.0, -1.0)):
                scores[i, j] = fly(self.member(self.mean + sign * SIGMA * noise[i]), seed)
        ranks = scores.ravel().argsort().argsort().reshape(scores.shape) / (scores.size - 1) - 0.5
        weight = torch.from_numpy(ranks[:, 0] - ranks[:, 1]).float()
        gradient = weight @ noise / (PAIRS * SIGMA)
        self.momentum = 0.9 * self.momentum + 0.1 * gradient
        self.mean = (1 - DECAY) * self.mean + RATE * SIGMA * self.momentum
        return scores


def main():
    torch.manual_seed(2)
    evolution = Evolution(2)
    steps = updates = 0
    begin = time.perf_counter()
    for generation in range(GENERATIONS):
        scores = evolution.generation(100 + generation)
        steps += scores.size * STARTS * HORIZON
        updates += 1
        print(f"generation {generation}: mean {scores.mean():.3f} best {scores.max():.3f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
