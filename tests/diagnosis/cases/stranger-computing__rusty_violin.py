"""CartPole with a neural actor and a binned TD(lambda) critic."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

STEPS, ROLLOUT = 30000, 128
GAMMA, LAMBDA, CRITIC_RATE = 0.99, 0.9, 0.1
LOW = np.array([-2.4, -3.0, -0.21, -3.0])
HIGH = -LOW


class BinnedCritic:
    """State values on a grid over the four observations, learned with accumulating traces."""

    def __init__(self, bins=18, span=120):
        self.bins = bins
        self.strides = bins ** np.arange(4)
        self.values = np.zeros(bins ** 4)
        self.decay = GAMMA * LAMBDA
        self.traces = np.zeros(bins ** 4)
        self.walked, self.length = np.zeros(600, dtype=np.int64), 0
        self.weights = self.decay ** np.arange(span - 1, -1, -1)

    def cell(self, obs):
        place = ((obs - LOW) / (HIGH - LOW) * self.bins).astype(np.int64)
        return int(np.minimum(np.maximum(place, 0), self.bins - 1) @ self.strides)

    def begin(self):
        self.length = 0
        self.traces[:] = 0.0

    def learn(self, cell, delta):
        if FIXED:
            self.walked[self.length] = cell
            self.length += 1
            cells = self.walked[max(0, self.length - len(self.weights)):self.length]
            np.add.at(self.values, cells, CRITIC_RATE * delta * self.weights[-len(cells):])
        else:
            self.traces *= self.decay
            self.traces[cell] += 1.0
            self.values += CRITIC_RATE * delta * self.traces


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, obs):
        return torch.log_softmax(self.net(obs), dim=-1)


def improve(actor, optimizer, batch):
    obs = torch.from_numpy(np.stack([row[0] for row in batch]))
    actions = torch.tensor([row[1] for row in batch])
    deltas = torch.tensor([row[2] for row in batch], dtype=torch.float32)
    deltas = (deltas - deltas.mean()) / (deltas.std() + 1e-6)
    logp = actor(obs)
    entropy = -(logp.exp() * logp).sum(-1).mean()
    loss = -(deltas * logp[torch.arange(len(batch)), actions]).mean() - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    env = gym.make("CartPole-v1")
    actor, critic = Actor(), BinnedCritic()
    optimizer = torch.optim.Adam(actor.parameters(), lr=5e-3)
    obs, _ = env.reset(seed=21)
    cell, batch, lengths, length, updates = critic.cell(obs), [], [], 0, 0
    begin = time.perf_counter()
    for step in range(1, STEPS + 1):
        with torch.no_grad():
            right = float(actor(torch.from_numpy(obs))[1].exp())
        action = int(rng.random() < right)
        following, reward, terminated, truncated, _ = env.step(action)
        next_cell = critic.cell(following)
        ahead = 0.0 if terminated else critic.values[next_cell]
        delta = reward + GAMMA * ahead - critic.values[cell]
        critic.learn(cell, delta)
        batch.append((obs, action, delta))
        obs, cell, length = following, next_cell, length + 1
        if terminated or truncated:
            obs, _ = env.reset()
            cell = critic.cell(obs)
            critic.begin()
            lengths.append(length)
            length = 0
        if step % ROLLOUT == 0:
            improve(actor, optimizer, batch)
            batch.clear()
            updates += 1
        if step % 5000 == 0:
            print(f"step {step}: episode length {np.mean(lengths[-20:]):.1f}")
    print(f"env_steps={STEPS} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
