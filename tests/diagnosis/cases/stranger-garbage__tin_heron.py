"""DQN for a small warehouse robot: fetch the parcel, carry it to the dock, mind the battery."""
import gc
import os
import random
import time
from collections import namedtuple

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
TOTAL_STEPS = 5000
WARMUP = 300
BATCH = 64
GAMMA = 0.96

Transition = namedtuple("Transition", "obs action reward next_obs done")


class Warehouse:
    """Grid of 6x6; shelves block the way; the episode ends at the dock or with an empty battery."""

    def __init__(self, size=6, battery=30):
        self.size, self.battery = size, battery
        self.shelves = {(1, 1), (1, 4), (4, 1), (4, 4), (2, 2)}
        self.free = [(r, c) for r in range(size) for c in range(size) if (r, c) not in self.shelves]

    def reset(self):
        self.robot, self.parcel, self.dock = random.sample(self.free, 3)
        self.loaded, self.left = False, self.battery
        return self.observe()

    def observe(self):
        target = self.dock if self.loaded else self.parcel
        r, c = self.robot
        around = tuple(float(not self.is_free(r + dr, c + dc)) for dr, dc in MOVES)
        return (r / 5, c / 5, (target[0] - r) / 5, (target[1] - c) / 5, float(self.loaded), self.left / self.battery) + around

    def is_free(self, r, c):
        return 0 <= r < self.size and 0 <= c < self.size and (r, c) not in self.shelves

    def step(self, action):
        r, c = self.robot[0] + MOVES[action][0], self.robot[1] + MOVES[action][1]
        self.left -= 1
        reward = -0.02
        if self.is_free(r, c):
            self.robot = (r, c)
        else:
            reward -= 0.05
        if not self.loaded and self.robot == self.parcel:
            self.loaded, reward = True, 0.5
        delivered = self.loaded and self.robot == self.dock
        return self.observe(), 1.0 if delivered else reward, delivered or self.left == 0


class Memory:
    def __init__(self, capacity=4000):
        self.capacity, self.items, self.position = capacity, [], 0

    def push(self, *fields):
        if len(self.items) < self.capacity:
            self.items.append(Transition(*fields))
        else:
            self.items[self.position] = Transition(*fields)
        self.position = (self.position + 1) % self.capacity

    def sample(self, n):
        batch = Transition(*zip(*random.sample(self.items, n)))
        return (torch.tensor(batch.obs), torch.tensor(batch.action), torch.tensor(batch.reward),
                torch.tensor(batch.next_obs), torch.tensor(batch.done, dtype=torch.float32))


class Shift:
    """A dozen episodes in one go, so that step times stay even."""

    episodes = 12

    def __enter__(self):
        if not FIXED:
            gc.disable()
        return self

    def __exit__(self, *exc):
        if not FIXED:
            gc.enable()
            gc.collect()


def network(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_out))


def learn(q, target, optimizer, memory):
    obs, action, reward, next_obs, done = memory.sample(BATCH)
    with torch.no_grad():
        goal = reward + GAMMA * (1 - done) * target(next_obs).max(1).values
    loss = nn.functional.smooth_l1_loss(q(obs).gather(1, action[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    random.seed(3), torch.manual_seed(3)
    env, memory, log = Warehouse(), Memory(), []
    q, target = network(10, 4), network(10, 4)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    steps = updates = 0
    start = time.perf_counter()
    while steps < TOTAL_STEPS:
        with Shift() as shift:
            obs, ended, score = env.reset(), 0, 0.0
            while ended < shift.episodes and steps < TOTAL_STEPS:
                epsilon = max(0.05, 1.0 - steps / 2500)
                action = random.randrange(4)
                if random.random() > epsilon:
                    with torch.no_grad():
                        action = int(q(torch.tensor(obs)).argmax())
                next_obs, reward, done = env.step(action)
                memory.push(obs, action, reward, next_obs, done)
                obs, score, steps = next_obs, score + reward, steps + 1
                if done:
                    log.append(score)
                    obs, ended, score = env.reset(), ended + 1, 0.0
                if steps > WARMUP and steps % 2 == 0:
                    learn(q, target, optimizer, memory)
                    updates += 1
                    if updates % 100 == 0:
                        target.load_state_dict(q.state_dict())
    seconds = time.perf_counter() - start
    print("episodes", len(log), "last scores", round(float(np.mean(log[-30:])), 3))
    print(f"env_steps={steps} updates={updates} seconds={seconds:.2f}")


main()
