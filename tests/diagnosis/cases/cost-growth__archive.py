"""Batch-mode actor-critic whose experience is kept in NumPy arrays."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
N_OBS = 64


class Experience:
    def __init__(self):
        self.data = {}
        self.n = 0

    def append(self, **row):
        if FIXED:
            self._write(row)
        else:
            for name, value in row.items():
                new = np.asarray(value, dtype=np.float32)[None]
                self.data[name] = np.concatenate([self.data[name], new]) if name in self.data else new
        self.n += 1

    def _write(self, row):
        for name, value in row.items():
            value = np.asarray(value, dtype=np.float32)
            if name not in self.data:
                self.data[name] = np.zeros((1024, *value.shape), np.float32)
            elif self.n == len(self.data[name]):
                self.data[name] = np.concatenate([self.data[name], np.zeros_like(self.data[name])])
            self.data[name][self.n] = value

    def minibatch(self, size, rng):
        rows = rng.integers(0, self.n, size)
        return {name: torch.from_numpy(column[rows]) for name, column in self.data.items()}


class Sensors:
    """A linear plant seen through many sensors."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.c = np.random.default_rng(0).normal(0, 1, (N_OBS, 3)).astype(np.float32)

    def reset(self):
        self.z, self.k = self.rng.normal(0, 1, 3).astype(np.float32), 0
        return self.c @ self.z

    def step(self, u):
        self.z = 0.97 * self.z + np.array([0.0, 0.0, 0.2 * u], np.float32) + 0.1 * np.roll(self.z, -1)
        self.k += 1
        return self.c @ self.z, -float(self.z @ self.z), self.k >= 60


def main(steps=10_500):
    torch.set_num_threads(1)
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    began = time.time()
    plant, experience = Sensors(6), Experience()
    actor = nn.Sequential(nn.Linear(N_OBS, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
    critic = nn.Sequential(nn.Linear(N_OBS + 1, 64), nn.ReLU(), nn.Linear(64, 1))
    opt_a, opt_c = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam(critic.parameters(), 1e-3)
    obs = plant.reset()
    updates = 0
    for t in range(steps):
        with torch.no_grad():
            u = float(actor(torch.from_numpy(obs))) + rng.normal(0, 0.2)
        nxt, reward, end = plant.step(u)
        experience.append(obs=obs, action=[u], reward=reward, next_obs=nxt, end=end)
        obs = plant.reset() if end else nxt
        if t % 4 == 3 and t > 200:
            b = experience.minibatch(64, rng)
            with torch.no_grad():
                ahead = critic(torch.cat([b["next_obs"], actor(b["next_obs"])], 1))[:, 0]
                y = b["reward"] + 0.95 * (1 - b["end"]) * ahead
            loss = (critic(torch.cat([b["obs"], b["action"]], 1))[:, 0] - y).pow(2).mean()
            opt_c.zero_grad()
            loss.backward()
            opt_c.step()
            loss = -critic(torch.cat([b["obs"], actor(b["obs"])], 1)).mean()
            opt_a.zero_grad()
            loss.backward()
            opt_a.step()
            updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - began:.2f}")


if __name__ == "__main__":
    main()
