"""Q-learning for a lift from a large memory of arrays; the fixed twin draws its indices with replacement."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
CAPACITY = 100_000


class Lift:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.floor, self.call, self.clock = 0.0, self.rng.uniform(0, 1), 0
        return self.sense()

    def sense(self):
        return np.array([self.floor, self.call, self.call - self.floor], np.float32)

    def step(self, action):
        self.floor, self.clock = float(np.clip(self.floor + 0.1 * (action - 1), 0, 1)), self.clock + 1
        return self.sense(), -abs(self.call - self.floor), self.clock >= 50, {}


class Memory:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.obs = self.rng.uniform(0, 1, (CAPACITY, 3)).astype(np.float32)  # earlier play
        self.action = self.rng.integers(3, size=CAPACITY)
        self.reward = -np.abs(self.obs[:, 2])
        self.at = 0

    def add(self, obs, action, reward):
        self.obs[self.at], self.action[self.at], self.reward[self.at] = obs, action, reward
        self.at = (self.at + 1) % CAPACITY

    def draw(self, n):
        if FIXED:
            return self.rng.integers(CAPACITY, size=n)
        return np.random.choice(CAPACITY, n, replace=False)

    def sample(self, n):
        index = self.draw(n)
        return [torch.from_numpy(x[index]) for x in (self.obs, self.action, self.reward)]


def main(episodes=60):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    np.random.seed(3)
    start = time.time()
    env, memory = Lift(3), Memory(3)
    net = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    steps = 0
    for _ in range(episodes):
        obs, done = env.reset(), False
        while not done:
            with torch.no_grad():
                action = int(net(torch.from_numpy(obs)).argmax())
            after, reward, done, _ = env.step(action)
            memory.add(obs, action, reward)
            obs, steps = after, steps + 1
        for _ in range(50):
            states, actions, rewards = memory.sample(64)
            values = net(states).gather(1, actions[:, None]).squeeze(1)
            loss = (values - rewards).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"env_steps={steps} updates={steps} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
