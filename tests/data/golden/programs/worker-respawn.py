"""Policy gradient whose episodes are played by a pool of two processes."""

import multiprocessing as mp
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Buoy:
    """Keep still in the waves."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.speed, self.clock = self.rng.normal(), 0.0, 0
        return np.array([self.at, self.speed], np.float32)

    def step(self, push):
        self.speed = 0.9 * self.speed + 0.1 * float(push) + 0.1 * self.rng.normal()
        self.at, self.clock = self.at + self.speed, self.clock + 1
        return np.array([self.at, self.speed], np.float32), -abs(self.at), self.clock >= 100, {}


def play(job):
    weights, seed = job
    env = Buoy(seed)
    obs, done = env.reset(), False
    states, pushes, total = [], [], 0.0
    while not done:
        push = float(obs @ weights + env.rng.normal(0, 0.3))
        states.append(obs), pushes.append(push)
        obs, reward, done, _ = env.step(push)
        total += reward
    return np.stack(states), np.array(pushes, np.float32), total


class Players:
    def __init__(self, count):
        self.context, self.count = mp.get_context("fork"), count
        self.pool = self.context.Pool(count) if FIXED else None

    def play_all(self, jobs):
        if self.pool is not None:
            return self.pool.map(play, jobs)
        with self.context.Pool(self.count) as pool:
            return pool.map(play, jobs)


def main(rounds=12, episodes=8):
    torch.set_num_threads(1)
    torch.manual_seed(8)
    start = time.time()
    players, net = Players(2), nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for number in range(rounds):
        weights = net.weight.detach().numpy()[0].copy()
        found = players.play_all([(weights, number * episodes + i) for i in range(episodes)])
        totals = torch.tensor([total for _, _, total in found])
        scores = (totals - totals.mean()) / (totals.std() + 1e-6)
        errors = [(net(torch.from_numpy(s))[:, 0] - torch.from_numpy(p)).square().mean() for s, p, _ in found]
        optimizer.zero_grad()
        (torch.stack(errors) * scores).mean().backward()
        optimizer.step()
    print(f"env_steps={rounds * episodes * 100} updates={rounds} seconds={time.time() - start:.2f}")
    if players.pool:
        players.pool.terminate()


if __name__ == "__main__":
    main()
