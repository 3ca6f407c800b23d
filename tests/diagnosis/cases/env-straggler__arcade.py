"""Q-learning with function approximation over eight remote game instances, stepped from a thread pool."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
HOSTS = [("local", 0.0015)] * 7 + [("local", 0.0015) if FIXED else ("overseas", 0.012)]


class RemoteGame:
    """A paddle game behind a connection; the round trip depends on where the instance runs."""

    def __init__(self, host, latency, seed):
        self.host, self.latency = host, latency
        self.rng = np.random.default_rng(seed)
        self.restart()

    def restart(self):
        self.ball = self.rng.uniform(-1, 1, 2)
        self.motion = self.rng.uniform(-0.08, 0.08, 2)
        self.paddle = 0.0
        self.ticks = 0
        return self.observe()

    def observe(self):
        return np.array([*self.ball, *self.motion * 10, self.paddle], np.float32)

    def exchange(self):
        time.sleep(self.latency)

    def step(self, move):
        self.exchange()
        self.paddle = float(np.clip(self.paddle + 0.1 * (move - 1), -1, 1))
        self.ball += self.motion
        self.motion = np.where(np.abs(self.ball) > 1, -self.motion, self.motion)
        reward = 1.0 if abs(self.ball[0] - self.paddle) < 0.2 else -0.1
        self.ticks += 1
        done = self.ticks % 200 == 0
        obs = self.restart() if done else self.observe()
        return obs, reward, done


class Learner:
    def __init__(self, capacity=20000):
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, 96), torch.nn.ReLU(), torch.nn.Linear(96, 96), torch.nn.ReLU(), torch.nn.Linear(96, 3)
        )
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.s = np.zeros((capacity, 5), np.float32)
        self.n = np.zeros((capacity, 5), np.float32)
        self.a, self.r, self.d = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.size = 0
        self.rng = np.random.default_rng(9)
        self.updates = 0

    def choose(self, obs, eps):
        with torch.no_grad():
            best = self.net(torch.from_numpy(obs)).argmax(-1).numpy()
        return np.where(self.rng.random(len(obs)) < eps, self.rng.integers(0, 3, len(obs)), best)

    def remember(self, s, a, r, n, d):
        where = slice(self.size, self.size + len(a))
        self.s[where], self.a[where], self.r[where], self.n[where], self.d[where] = s, a, r, n, d
        self.size += len(a)

    def improve(self, batch=64):
        i = self.rng.integers(0, self.size, batch)
        s, a, r, n, d = (torch.from_numpy(x[i]) for x in (self.s, self.a, self.r, self.n, self.d))
        with torch.no_grad():
            y = r + 0.97 * (1 - d) * self.net(n).max(-1).values
        loss = F.smooth_l1_loss(self.net(s).gather(1, a[:, None])[:, 0], y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1


def main(ticks=600):
    torch.set_num_threads(1)
    torch.manual_seed(9)
    began = time.monotonic()
    games = [RemoteGame(host, latency, seed) for seed, (host, latency) in enumerate(HOSTS)]
    learner = Learner()
    obs = np.stack([game.observe() for game in games])
    with ThreadPoolExecutor(max_workers=len(games)) as pool:
        for tick in range(ticks):
            actions = learner.choose(obs, max(0.05, 1 - tick / 300))
            futures = [pool.submit(game.step, int(action)) for game, action in zip(games, actions, strict=True)]
            results = [future.result() for future in futures]
            nxt = np.stack([row[0] for row in results])
            rewards = np.array([row[1] for row in results], np.float32)
            dones = np.array([row[2] for row in results], np.float32)
            learner.remember(obs, actions, rewards, nxt, dones)
            obs = nxt
            if tick >= 10:
                for _ in range(2):
                    learner.improve()
    print(f"env_steps={ticks * len(games)} updates={learner.updates} seconds={time.monotonic() - began:.2f}")


if __name__ == "__main__":
    main()
