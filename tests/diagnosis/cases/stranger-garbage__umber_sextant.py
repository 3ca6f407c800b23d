"""VDN on a predator-prey grid: four predators share a network and a team value."""
import copy
import gc
import os
import random
import time
from collections import deque

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SIDE, PACK, PREY, HORIZON = 12, 4, 3, 80
OBS = 2 + 2 * (PACK - 1) + 2 * PREY + PACK
MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
EPISODES, BATCH, TRAIN_EVERY, CAPACITY = 50, 48, 3, 20_000
GAMMA = 0.96
RSS_LIMIT_MB = 2000 if FIXED else 150


class MemoryGuard:
    """The login node kills jobs that grow without bound, so keep an eye on the resident set."""

    def __init__(self, limit_mb):
        self.limit_mb = limit_mb
        self.page_mb = os.sysconf("SC_PAGE_SIZE") / 2 ** 20

    def resident(self):
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * self.page_mb

    def check(self):
        if self.resident() > self.limit_mb:
            gc.collect()


class Animal:
    def __init__(self, world, index):
        self.world, self.index = world, index
        self.r, self.c = world.rng.randrange(SIDE), world.rng.randrange(SIDE)

    def move(self, action):
        dr, dc = MOVES[action]
        self.r, self.c = (self.r + dr) % SIDE, (self.c + dc) % SIDE

    def offset(self, other):
        dr = (other.r - self.r + SIDE // 2) % SIDE - SIDE // 2
        dc = (other.c - self.c + SIDE // 2) % SIDE - SIDE // 2
        return dr / SIDE, dc / SIDE

    def sense(self):
        row = [self.r / SIDE, self.c / SIDE]
        for other in self.world.pack:
            if other is not self:
                row += self.offset(other)
        for prey in self.world.prey:
            row += self.offset(prey)
        return row + [float(i == self.index) for i in range(PACK)]


class World:
    def __init__(self, rng):
        self.rng = rng
        self.pack = [Animal(self, i) for i in range(PACK)]
        self.prey = [Animal(self, i) for i in range(PREY)]
        self.t = 0

    def observe(self):
        return np.array([p.sense() for p in self.pack], np.float32)

    def step(self, actions):
        for predator, action in zip(self.pack, actions):
            predator.move(action)
        reward = -0.02
        for prey in self.prey:
            near = sum(abs(p.r - prey.r) + abs(p.c - prey.c) <= 1 for p in self.pack)
            if near >= 2:
                reward += 1.0
                prey.r, prey.c = self.rng.randrange(SIDE), self.rng.randrange(SIDE)
            else:
                reward += 0.02 * near
                prey.move(self.rng.randrange(len(MOVES)))
        self.t += 1
        return self.observe(), reward, self.t >= HORIZON


class Trainer:
    def __init__(self, rng):
        self.rng = rng
        self.net = nn.Sequential(nn.Linear(OBS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(MOVES)))
        self.target = copy.deepcopy(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.replay = deque(maxlen=CAPACITY)
        self.guard = MemoryGuard(RSS_LIMIT_MB)
        self.steps = self.updates = 0

    @torch.no_grad()
    def act(self, obs, epsilon):
        greedy = self.net(torch.from_numpy(obs)).argmax(-1).tolist()
        return [self.rng.randrange(len(MOVES)) if self.rng.random() < epsilon else a for a in greedy]

    def learn(self):
        obs, action, reward, nxt, done = zip(*self.rng.sample(self.replay, BATCH))
        obs, nxt = torch.from_numpy(np.stack(obs)), torch.from_numpy(np.stack(nxt))
        action, reward = torch.tensor(action), torch.tensor(reward)
        alive = 1.0 - torch.tensor(done, dtype=torch.float32)
        with torch.no_grad():
            goal = reward + GAMMA * alive * self.target(nxt).amax(-1).sum(1)
        team = self.net(obs).gather(-1, action[..., None]).squeeze(-1).sum(1)
        loss = nn.functional.smooth_l1_loss(team, goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 150 == 0:
            self.target.load_state_dict(self.net.state_dict())

    def episode(self, epsilon):
        world = World(self.rng)
        obs, total, done = world.observe(), 0.0, False
        while not done:
            action = self.act(obs, epsilon)
            nxt, reward, done = world.step(action)
            self.replay.append((obs, action, reward, nxt, done))
            obs, total = nxt, total + reward
            self.steps += 1
            if self.steps % TRAIN_EVERY == 0 and len(self.replay) >= BATCH:
                self.learn()
        self.guard.check()
        return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    trainer = Trainer(random.Random(4))
    returns = []
    start = time.perf_counter()
    for episode in range(EPISODES):
        returns.append(trainer.episode(max(0.05, 1.0 - episode / 25)))
    seconds = time.perf_counter() - start
    print(f"return first10={np.mean(returns[:10]):.2f} last10={np.mean(returns[-10:]):.2f}")
    print(f"env_steps={trainer.steps} updates={trainer.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
