"""Policy gradient for a searcher that keeps a map of where the goal may be; the maps of all steps stay in memory."""

import os
import time
from collections import deque

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE = 192


class Field:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.goal, self.clock = self.rng.uniform(0, 1, 2), self.rng.uniform(0, 1, 2), 0
        return self.sense()

    def sense(self):
        return np.array([*self.at, *(self.goal - self.at)], np.float32)

    def step(self, move):
        self.at, self.clock = np.clip(self.at + 0.05 * np.asarray(move), 0, 1), self.clock + 1
        return self.sense(), -float(np.abs(self.goal - self.at).sum()), self.clock >= 64, {}


class Study:
    """For later study."""

    def __init__(self):
        self.maps = deque(maxlen=64) if FIXED else []

    def note(self, obs):
        self.maps.append(np.full((SIDE, SIDE), obs[2], np.float32))


def main(episodes=100):
    torch.set_num_threads(1)
    torch.manual_seed(9)
    rng = np.random.default_rng(9)
    start = time.time()
    env, study = Field(9), Study()
    net = nn.Sequential(nn.Linear(4, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    steps = 0
    for _ in range(episodes):
        obs, done = env.reset(), False
        states, moves, rewards = [], [], []
        while not done:
            with torch.no_grad():
                move = net(torch.from_numpy(obs)).numpy() + rng.normal(0, 0.3, 2).astype(np.float32)
            states.append(obs), moves.append(move)
            obs, reward, done, _ = env.step(move)
            rewards.append(reward)
            study.note(obs)
            steps += 1
        rows = [torch.from_numpy(np.stack(column).astype(np.float32)) for column in (states, moves, rewards)]
        for _ in range(20):
            error = (net(rows[0]) - rows[1]).square().sum(1)
            optimizer.zero_grad()
            (error * (rows[2] - rows[2].mean())).mean().backward()
            optimizer.step()
    print(f"env_steps={steps} updates={20 * episodes} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
