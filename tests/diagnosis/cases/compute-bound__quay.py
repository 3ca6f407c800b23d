"""Q-learning for cranes with a bonus for novelty: how far a state is from those seen before, by a Gaussian process."""

import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
CRANES, STEPS, KNOWN, EVERY = 8, 1500, 120, 40
ACTIONS, FEATURES = 5, 6


class Quay:
    """Loads swing below their trolleys; the crane moves the trolley."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.state = np.zeros((CRANES, FEATURES), np.float32)

    def reset(self):
        self.state[:] = self.rng.normal(0, 0.3, self.state.shape)
        return self.state.copy()

    def step(self, actions):
        push = (np.asarray(actions) - 2) / 2
        x, v, angle, spin, goal, age = self.state.T
        spin += -0.2 * angle - 0.1 * push
        angle += 0.1 * spin
        v += 0.1 * push
        x += 0.1 * v
        age += 0.01
        reward = -np.abs(x - goal) - 0.3 * np.abs(angle)
        done = (age > 1) | (np.abs(x) > 3)
        self.state[done] = self.rng.normal(0, 0.3, (int(done.sum()), FEATURES))
        return self.state.copy(), reward.astype(np.float32), done


class Novelty:
    def __init__(self):
        self.points = np.random.default_rng(1).normal(size=(KNOWN, FEATURES))
        self.at = self.calls = 0
        self.factor = None

    def refit(self):
        squares = ((self.points[:, None] - self.points[None]) ** 2).sum(-1)
        self.factor = np.linalg.inv(np.exp(-squares) + 0.1 * np.eye(KNOWN))

    def bonus(self, states):
        if self.calls % EVERY == 0 or not FIXED:
            self.refit()
        self.calls += 1
        self.points[self.at % KNOWN] = states[self.calls % CRANES]
        self.at += 1
        near = np.exp(-((states[:, None] - self.points[None]) ** 2).sum(-1))
        return (1 - np.einsum("ij,jk,ik->i", near, self.factor, near)).clip(0).astype(np.float32)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    quay, novelty = Quay(3), Novelty()
    net = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, ACTIONS))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    states = quay.reset()
    updates = 0
    start = time.perf_counter()
    for _ in range(STEPS):
        with torch.no_grad():
            greedy = net(torch.from_numpy(states)).argmax(1).numpy()
        actions = np.where(rng.random(CRANES) < 0.1, rng.integers(ACTIONS, size=CRANES), greedy)
        after, rewards, done = quay.step(actions)
        rewards = rewards + 0.1 * novelty.bonus(after)
        with torch.no_grad():
            best = net(torch.from_numpy(after)).amax(1)
        target = torch.from_numpy(rewards) + 0.97 * best * torch.from_numpy(~done)
        values = net(torch.from_numpy(states)).gather(1, torch.from_numpy(actions)[:, None])[:, 0]
        loss = (values - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        states = after
    print(f"env_steps={STEPS * CRANES} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
