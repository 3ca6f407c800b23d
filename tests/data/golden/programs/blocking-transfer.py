"""Off-policy learning from pictures: the replay buffer is in the host's memory, the network on a GPU."""

import os
import time

import made_up_device as gpu
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SIDE = 32


class Sky:
    """Keep the bright spot in the middle."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.clock = int(self.rng.integers(4, SIDE - 4)), 0
        return self.see()

    def see(self):
        picture = np.zeros((SIDE, SIDE), np.float32)
        picture[:, self.at] = 1.0
        return picture

    def step(self, action):
        self.at = int(np.clip(self.at + 2 * int(action) - 1, 0, SIDE - 1))
        self.clock += 1
        return self.see(), -abs(self.at - SIDE / 2) / SIDE, self.clock >= 40, {}


class Buffer:
    def __init__(self, size, batch):
        self.pictures, self.rewards, self.count = torch.zeros(size, SIDE, SIDE), torch.zeros(size), 0
        self.near = gpu.put(torch.zeros(batch, SIDE, SIDE))

    def add(self, picture, reward):
        self.pictures[self.count], self.rewards[self.count] = torch.from_numpy(picture), float(reward)
        self.count += 1

    def batch(self):
        rows = torch.randint(self.count, (len(self.near),))
        pictures = self.pictures[rows]
        if not FIXED:
            self.upload(pictures)
        return pictures, self.rewards[rows]

    def upload(self, pictures):
        self.near.copy_(pictures)


def main(steps=1500, batch=512):
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    gpu.begin()
    start = time.time()
    env, buffer = Sky(4), Buffer(steps, batch)
    net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    picture, updates = env.reset(), 0
    for t in range(steps):
        after, reward, done, _ = env.step(rng.integers(2))
        buffer.add(picture, reward)
        picture = env.reset() if done else after
        if t % 2:
            pictures, rewards = buffer.batch()
            loss = (net(pictures)[:, 0] - rewards).square().mean()
            optimizer.zero_grad()
            loss.backward()
            gpu.queue(500)
            optimizer.step()
            updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
