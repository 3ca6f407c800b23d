"""Q-learning from a fixed set of transitions on a GPU, with the loss in the progress line."""

import os
import time

import made_up_device as gpu
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Corridor:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.clock = self.rng.uniform(-1, 1), 0
        return np.array([self.at, 1.0], np.float32)

    def step(self, action):
        self.at, self.clock = self.at + 0.1 * (2 * int(action) - 1), self.clock + 1
        return np.array([self.at, 1.0], np.float32), -abs(self.at), self.clock >= 50, {}


class Learner:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)
        self.losses = []

    def update(self, states, actions, rewards):
        guess = self.net(states).gather(1, actions[:, None])[:, 0]
        loss = nn.functional.mse_loss(guess, rewards)
        self.optimizer.zero_grad()
        loss.backward()
        gpu.queue(1500)
        self.optimizer.step()
        return gpu.put(loss)

    def train(self, rows, updates):
        shown = None
        for _ in range(updates):
            i = torch.randint(len(rows[0]), (64,))
            loss = self.update(*(column[i] for column in rows))
            if not FIXED:
                shown = self.show(loss)
            self.losses.append(loss)
        return shown or self.show(loss)

    def show(self, loss):
        return f"{loss.item():.3f}"


def main(rounds=30, steps=50, updates=50):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    gpu.begin()
    start = time.time()
    env, learner = Corridor(3), Learner()
    columns = ([], [], [])
    for _ in range(rounds):
        obs = env.reset()
        for _ in range(steps):
            action = int(rng.integers(2))
            after, reward, _, _ = env.step(action)
            for column, value in zip(columns, (obs, action, reward), strict=True):
                column.append(value)
            obs = after
        states, actions, rewards = columns
        rows = np.stack(states), np.array(actions), np.array(rewards, np.float32)
        learner.train([torch.from_numpy(column) for column in rows], updates)
    print(f"env_steps={rounds * steps} updates={rounds * updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
