"""Population-based training: four Q-learners with their own memory; the weaker half restarts from the stronger half."""
import copy
import os
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
OBS, ACTIONS = 24, 5


class Greenhouse:
    """A batch of plants; each action feeds one of the nutrients, the levels drift and couple."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.mix = (np.random.default_rng(0).standard_normal((OBS, OBS)) * 0.2).astype(np.float32)
        self.feed = np.random.default_rng(1).standard_normal((ACTIONS, OBS)).astype(np.float32)
        self.level = self.rng.standard_normal((n, OBS)).astype(np.float32)
        self.age = self.rng.integers(0, 50, n)

    def step(self, act):
        noise = self.rng.standard_normal((self.n, OBS), dtype=np.float32)
        self.level = np.tanh(0.9 * self.level + 0.2 * self.level @ self.mix + 0.3 * self.feed[act] + 0.05 * noise)
        reward = 1.0 - np.abs(self.level[:, :6]).mean(1)
        self.age += 1
        done = self.age >= 50
        self.age[done] = 0
        nxt = self.level.copy()
        self.level[done] = self.rng.standard_normal((int(done.sum()), OBS))
        return nxt, reward, done.astype(np.float32)


@dataclass
class Hyper:
    lr: float
    eps: float

    def perturbed(self, rng):
        return Hyper(self.lr * rng.choice([0.8, 1.25]), float(np.clip(self.eps * rng.choice([0.8, 1.25]), 0.01, 0.5)))


class Memory:
    def __init__(self, size):
        self.size, self.at, self.full = size, 0, False
        self.obs, self.nxt = (np.zeros((size, OBS), np.float32) for _ in range(2))
        self.act = np.zeros(size, np.int64)
        self.rew, self.done = (np.zeros(size, np.float32) for _ in range(2))

    def add(self, obs, act, rew, nxt, done):
        idx = (self.at + np.arange(len(act))) % self.size
        self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx], self.done[idx] = obs, act, rew, nxt, done
        self.full |= self.at + len(act) >= self.size
        self.at = (self.at + len(act)) % self.size

    def draw(self, rng, n):
        idx = rng.integers(0, self.size if self.full else self.at, n)
        return [torch.from_numpy(x[idx]) for x in (self.obs, self.act, self.rew, self.nxt, self.done)]


class Member:
    def __init__(self, hyper, size):
        self.hyper, self.memory, self.score = hyper, Memory(size), 0.0
        self.net = nn.Sequential(nn.Linear(OBS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, ACTIONS))
        self.target = copy.deepcopy(self.net)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=hyper.lr)

    def interact(self, env, rng, steps):
        total = 0.0
        for _ in range(steps):
            obs = env.level.copy()
            with torch.no_grad():
                act = self.net(torch.from_numpy(obs)).argmax(1).numpy()
            act = np.where(rng.random(env.n) < self.hyper.eps, rng.integers(0, ACTIONS, env.n), act)
            nxt, rew, done = env.step(act)
            self.memory.add(obs, act, rew, nxt, done)
            total += rew.mean()
        self.score = 0.7 * self.score + 0.3 * total / steps

    def learn(self, rng, count):
        for _ in range(count):
            obs, act, rew, nxt, done = self.memory.draw(rng, 256)
            with torch.no_grad():
                goal = rew + 0.95 * (1 - done) * self.target(nxt).max(1).values
            loss = F.smooth_l1_loss(self.net(obs).gather(1, act[:, None]).squeeze(1), goal)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        self.target.load_state_dict(self.net.state_dict())


@dataclass
class Population:
    count: int = 4
    memory: int = 400_000
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(4))

    def __post_init__(self):
        self.members = [Member(Hyper(10 ** self.rng.uniform(-4, -2.5), self.rng.uniform(0.05, 0.3)), self.memory)
                        for _ in range(self.count)]
        self.envs = [Greenhouse(32, 10 + i) for i in range(self.count)]

    def evolve(self):
        order = sorted(range(self.count), key=lambda i: self.members[i].score)
        half = self.count // 2
        for low, high in zip(order[:half], order[half:]):
            if FIXED:
                child, parent = self.members[low], self.members[high]
                child.net.load_state_dict(parent.net.state_dict())
                child.target.load_state_dict(parent.target.state_dict())
                child.opt.load_state_dict(parent.opt.state_dict())
                child.score = parent.score
            else:
                child = copy.deepcopy(self.members[high])
            child.hyper = self.members[high].hyper.perturbed(self.rng)
            for group in child.opt.param_groups:
                group["lr"] = child.hyper.lr
            self.members[low] = child

    def generation(self):
        for member, env in zip(self.members, self.envs):
            member.interact(env, self.rng, 12)
            member.learn(self.rng, 4)
        self.evolve()


def main(generations=60):
    torch.manual_seed(4)
    torch.set_num_threads(1)
    pop = Population()
    start = time.perf_counter()
    for _ in range(generations):
        pop.generation()
    seconds = time.perf_counter() - start
    print(f"env_steps={generations * 4 * 12 * 32} updates={generations * 4 * 4} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
