"""DQN on CartPole: array replay, target network, a short evaluation and a checkpoint now and then."""

import os
import tempfile
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    steps: int = 12_000
    learning_starts: int = 500
    train_every: int = 2
    batch: int = 128
    gamma: float = 0.99
    lr: float = 1e-3
    sync_every: int = 500
    evaluate_every: int = 6_000
    seed: int = 3


class Replay:
    def __init__(self, capacity, width, rng):
        self.obs, self.nxt = np.zeros((capacity, width), np.float32), np.zeros((capacity, width), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew, self.end = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.size, self.at, self.rng = 0, 0, rng

    def add(self, obs, act, rew, nxt, end):
        i = self.at
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.end[i] = obs, act, rew, nxt, end
        self.at = (i + 1) % len(self.act)
        self.size = min(self.size + 1, len(self.act))

    def sample(self, n):
        i = self.rng.integers(0, self.size, n)
        return [torch.from_numpy(column[i]) for column in (self.obs, self.act, self.rew, self.nxt, self.end)]


def make_net():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


@torch.no_grad()
def greedy(q, obs):
    return int(q(torch.from_numpy(obs)).argmax())


def evaluate(q, episodes=1):
    env = gym.make("CartPole-v1")
    total = 0.0
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(greedy(q, obs))
            total += reward
            over = terminated or truncated
    return total / episodes


def main(cfg=None):
    cfg = cfg or Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    with tempfile.TemporaryDirectory() as folder:
        start = time.time()
        env = gym.make("CartPole-v1")
        q, q_target = make_net(), make_net()
        q_target.load_state_dict(q.state_dict())
        optimizer = torch.optim.Adam(q.parameters(), lr=cfg.lr)
        replay = Replay(50_000, 4, rng)
        obs, _ = env.reset(seed=cfg.seed)
        updates = 0
        for step in range(cfg.steps):
            eps = max(0.05, 1 - step / 5000)
            action = int(rng.integers(2)) if rng.random() < eps else greedy(q, obs)
            nxt, reward, terminated, truncated, _ = env.step(action)
            replay.add(obs, action, reward, nxt, terminated)
            obs = env.reset()[0] if terminated or truncated else nxt
            if step >= cfg.learning_starts and step % cfg.train_every == 0:
                s, a, r, s2, d = replay.sample(cfg.batch)
                with torch.no_grad():
                    y = r + cfg.gamma * (1 - d) * q_target(s2).max(1).values
                loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
                if updates % cfg.sync_every == 0:
                    q_target.load_state_dict(q.state_dict())
            if (step + 1) % cfg.evaluate_every == 0:
                print(f"step {step + 1} return {evaluate(q):.1f}")
                torch.save(q.state_dict(), os.path.join(folder, "q.pt"))
        print(f"env_steps={cfg.steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
