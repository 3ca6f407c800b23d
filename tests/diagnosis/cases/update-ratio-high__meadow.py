"""DQN for a flock of grazing robots, each with its own little physics world."""
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
UPDATES_PER_STEP = 4 if FIXED else 64


class Meadow:
    """A robot on a hilly meadow drives to the tuft of grass; integrated in small time steps."""

    def __init__(self, seed, substeps=400):
        self.rng, self.substeps = random.Random(seed), substeps

    def reset(self):
        self.x, self.y = self.rng.uniform(-2, 2), self.rng.uniform(-2, 2)
        self.heading, self.speed = self.rng.uniform(-math.pi, math.pi), 0.0
        self.gx, self.gy = self.rng.uniform(-2, 2), self.rng.uniform(-2, 2)
        self.t = 0
        return self.observe()

    def observe(self):
        dx, dy = self.gx - self.x, self.gy - self.y
        c, s = math.cos(self.heading), math.sin(self.heading)
        return (c * dx + s * dy, c * dy - s * dx, c, s, self.speed, self.x, self.y)

    def step(self, action):
        turn, gas = (action % 3 - 1) * 2.0, 0.5 + (action // 3)
        dt = 0.1 / self.substeps
        for _ in range(self.substeps):
            c, s = math.cos(self.heading), math.sin(self.heading)
            slope = 0.4 * math.cos(2 * self.x) * c + 0.4 * math.sin(2 * self.y) * s
            self.speed += dt * (2 * gas - slope - 0.8 * self.speed)
            self.heading += dt * turn
            self.x += dt * self.speed * c
            self.y += dt * self.speed * s
        self.t += 1
        gap = math.hypot(self.gx - self.x, self.gy - self.y)
        done = gap < 0.2 or self.t >= 120
        reward = 5.0 if gap < 0.2 else -0.1 * gap
        return (self.reset() if done else self.observe()), reward, done


class Replay:
    def __init__(self, size):
        self.size, self.n, self.at = size, 0, 0
        self.obs, self.nxt = (np.zeros((size, 7), np.float32) for _ in range(2))
        self.act = np.zeros(size, np.int64)
        self.rew, self.done = (np.zeros(size, np.float32) for _ in range(2))

    def add(self, obs, act, rew, nxt, done):
        i = (self.at + np.arange(len(act))) % self.size
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = obs, act, rew, nxt, done
        self.at = (self.at + len(act)) % self.size
        self.n = min(self.size, self.n + len(act))

    def sample(self, rng, size):
        i = rng.integers(self.n, size=size)
        return [torch.from_numpy(x[i]) for x in (self.obs, self.act, self.rew, self.nxt, self.done)]


class Learner:
    def __init__(self):
        self.q, self.target = self.net(), self.net()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), lr=3e-4)
        self.updates = 0

    @staticmethod
    def net():
        return nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 6))

    def update(self, obs, act, rew, nxt, done):
        with torch.no_grad():
            goal = rew + 0.98 * (1 - done) * self.target(nxt).amax(1)
        loss = F.smooth_l1_loss(self.q(obs).gather(1, act[:, None])[:, 0], goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 400 == 0:
            self.target.load_state_dict(self.q.state_dict())


def main(n_envs=32, vector_steps=120):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    envs = [Meadow(i) for i in range(n_envs)]
    learner, replay = Learner(), Replay(20_000)
    obs = np.array([e.reset() for e in envs], np.float32)
    steps = 0
    start = time.perf_counter()
    for t in range(vector_steps):
        with torch.no_grad():
            act = learner.q(torch.from_numpy(obs)).argmax(1).numpy()
        explore = rng.random(n_envs) < max(0.05, 1 - t / 80)
        act = np.where(explore, rng.integers(6, size=n_envs), act)
        nxt, rew, done = zip(*(e.step(a) for e, a in zip(envs, act.tolist())))
        nxt = np.array(nxt, np.float32)
        replay.add(obs, act, rew, nxt, done)
        obs = nxt
        steps += n_envs
        for _ in range(UPDATES_PER_STEP):
            learner.update(*replay.sample(rng, 64))
    seconds = time.perf_counter() - start
    print(f"env_steps={steps} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
