"""Implicit Q-learning from a fixed data set of glider flights by a mediocre pilot."""
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

OBS, ACT = 8, 2


class Gliders:
    """A fleet of gliders flown at once: position, velocity, way point, wind."""

    def __init__(self, count, rng):
        self.count = count
        self.rng = rng

    def reset(self):
        self.pos = self.rng.uniform(-2, 2, size=(self.count, 2))
        self.vel = np.zeros((self.count, 2))
        self.goal = self.rng.uniform(-1, 1, size=(self.count, 2))
        self.wind = self.rng.normal(0, 0.3, size=(self.count, 2))
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.goal, self.wind], axis=1).astype(np.float32)

    def step(self, action):
        self.vel += 0.1 * (2.0 * np.clip(action, -1, 1) + self.wind - 0.5 * self.vel)
        self.pos += 0.1 * self.vel
        off = self.pos - self.goal
        return self.observe(), -(off * off).sum(1).astype(np.float32)


def log_flights(count=300, length=100, seed=1):
    """Transitions of a pilot who steers roughly the right way, as tensors."""
    rng = np.random.default_rng(seed)
    fleet = Gliders(count, rng)
    obs = fleet.reset()
    table = np.empty((length, count, 2 * OBS + ACT + 1), dtype=np.float32)
    for t in range(length):
        gain = rng.uniform(0.0, 1.5, size=(count, 1))
        action = np.clip(gain * (fleet.goal - fleet.pos) - 0.5 * fleet.vel + rng.normal(0, 0.5, (count, ACT)), -1, 1)
        nxt, reward = fleet.step(action)
        table[t] = np.concatenate([obs, action, reward[:, None], nxt], axis=1)
        obs = nxt
    return torch.from_numpy(table.reshape(-1, table.shape[-1]))


def mlp(inputs, outputs, width=256):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))


class Learner:
    def __init__(self, gamma=0.97, expectile=0.8, temperature=3.0, tau=0.005):
        self.gamma, self.expectile, self.temperature, self.tau = gamma, expectile, temperature, tau
        self.q1, self.q2 = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1)
        self.q1_slow, self.q2_slow = copy.deepcopy(self.q1), copy.deepcopy(self.q2)
        self.value, self.policy = mlp(OBS, 1), mlp(OBS, ACT)
        self.live = [*self.q1.parameters(), *self.q2.parameters()]
        self.slow = [*self.q1_slow.parameters(), *self.q2_slow.parameters()]
        self.q_opt = torch.optim.Adam(self.live, lr=3e-4)
        self.v_opt = torch.optim.Adam(self.value.parameters(), lr=3e-4)
        self.p_opt = torch.optim.Adam(self.policy.parameters(), lr=3e-4)

    @staticmethod
    def _descend(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update(self, rows):
        obs, action, reward, nxt = rows.split([OBS, ACT, 1, OBS], dim=1)
        pair = torch.cat([obs, action], dim=1)
        with torch.no_grad():
            best = torch.min(self.q1_slow(pair), self.q2_slow(pair))
            goal = 0.1 * reward + self.gamma * self.value(nxt)
        gap = best - self.value(obs)
        weight = torch.where(gap > 0, self.expectile, 1.0 - self.expectile)
        self._descend(self.v_opt, (weight * gap.pow(2)).mean())
        self._descend(self.q_opt, F.mse_loss(self.q1(pair), goal) + F.mse_loss(self.q2(pair), goal))
        trust = (self.temperature * gap.detach()).exp().clamp(max=50.0)
        self._descend(self.p_opt, (trust * (torch.tanh(self.policy(obs)) - action).pow(2)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(self.slow, self.live, self.tau)

    @torch.no_grad()
    def act(self, obs):
        return torch.tanh(self.policy(torch.from_numpy(obs))).numpy()


def fly(learner, count=64, length=60):
    fleet = Gliders(count, np.random.default_rng(99))
    obs, total = fleet.reset(), 0.0
    for _ in range(length):
        obs, reward = fleet.step(learner.act(obs))
        total += float(reward.mean())
    return total, count * length


def main(updates=260, batch=256):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    flights = log_flights()
    learner = Learner()
    env_steps = 0
    start = time.perf_counter()
    for update in range(1, updates + 1):
        rows = flights[torch.randint(len(flights), (batch,))]
        learner.update(rows)
        if update % 65 == 0:
            score, steps = fly(learner)
            env_steps += steps
            print(f"update {update} return {score:.1f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
