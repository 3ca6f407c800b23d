"""PPO with a small transformer over the last observations, on CartPole without velocities."""

import contextlib
import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
WINDOW = 16


class MemoryPolicy(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(2, width)
        self.place = nn.Parameter(torch.zeros(WINDOW, width))
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        y = self.head(self.encoder(self.embed(x) + self.place)[:, -1])
        return torch.distributions.Categorical(logits=y[:, :2]), y[:, 2]


class Collector:
    def __init__(self, policy, n_envs, seed):
        self.policy = policy
        self.envs = [gym.make("CartPole-v1") for _ in range(n_envs)]
        self.memory = [self.begin(env, seed + i) for i, env in enumerate(self.envs)]

    @staticmethod
    def begin(env, seed=None):
        obs, _ = env.reset(seed=seed)
        return deque([obs[[0, 2]]] * WINDOW, maxlen=WINDOW)

    def windows(self):
        return torch.from_numpy(np.stack([np.stack(m) for m in self.memory]))

    def rollout(self, horizon):
        rows = []
        self.policy.eval()
        with torch.no_grad() if FIXED else contextlib.nullcontext():
            for _ in range(horizon):
                x = self.windows()
                dist, value = self.policy(x)
                action = dist.sample()
                logp = dist.log_prob(action)
                reward, done = [], []
                for i, env in enumerate(self.envs):
                    obs, r, terminated, truncated, _ = env.step(int(action[i]))
                    self.memory[i].append(obs[[0, 2]])
                    if terminated or truncated:
                        self.memory[i] = self.begin(env)
                    reward.append(r)
                    done.append(float(terminated))
                rows.append((x, action, logp, value, torch.tensor(reward), torch.tensor(done)))
            last = self.policy(self.windows())[1]
        self.policy.train()
        return rows, last


def learn(policy, optimizer, rows, last, batch=256):
    running, targets = last.detach(), []
    for *_, reward, done in reversed(rows):
        running = reward + 0.98 * (1 - done) * running
        targets.append(running)
    x, a, logp, v = (torch.cat([row[k] for row in rows]).detach() for k in range(4))
    y = torch.cat(targets[::-1])
    adv = (y - v - (y - v).mean()) / ((y - v).std() + 1e-6)
    n = 0
    for i in torch.randperm(len(a)).split(batch):
        dist, value = policy(x[i])
        ratio = (dist.log_prob(a[i]) - logp[i]).exp()
        loss = -torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean() + 0.5 * (value - y[i]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += 1
    return n


def main(iterations=30, n_envs=4, horizon=256):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    t0 = time.time()
    policy = MemoryPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-4)
    collector = Collector(policy, n_envs, seed=0)
    updates = 0
    for _ in range(iterations):
        rows, last = collector.rollout(horizon)
        updates += learn(policy, optimizer, rows, last)
    print(f"env_steps={iterations * horizon * n_envs} updates={updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
