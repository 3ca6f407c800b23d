"""Model-based control of a water heater: learned dynamics, random-shooting planner over action sequences."""
import os
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


@dataclass
class Settings:
    seed: int = 8
    steps: int = 850
    warmup: int = 100
    candidates: int = 18
    horizon: int = 5
    batch: int = 256
    updates_per_step: int = 2
    hidden: int = 128


class Heater:
    """State: water, element and room temperature, inflow, target. Action: power in [-1, 1]."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.water, self.element, self.room = 0.2, 0.2, float(self.rng.uniform(0.1, 0.3))
        self.inflow, self.target, self.t = 0.0, float(self.rng.uniform(0.5, 0.9)), 0
        return self.state()

    def state(self):
        return np.array([self.water, self.element, self.room, self.inflow, self.target], np.float32)

    def step(self, power):
        if self.rng.random() < 0.1:
            self.inflow = float(self.rng.uniform(0, 0.2))
        self.element += 0.2 * (0.5 + 0.5 * power) - 0.25 * (self.element - self.water)
        self.water += 0.2 * (self.element - self.water) - 0.05 * (self.water - self.room) - self.inflow * self.water
        self.t += 1
        return self.state(), -abs(self.water - self.target) - 0.01 * abs(power), self.t >= 100


class Dynamics(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, 5))

    def forward(self, state, action):
        return state + self.net(torch.cat([state, action], dim=-1))


class Planner:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg

    def score(self, state, plan):
        """Predicted return of plan (..., horizon, 1) from state (..., 5)."""
        total = torch.zeros(state.shape[:-1])
        for h in range(self.cfg.horizon):
            action = plan[..., h, :]
            state = self.model(state, action)
            total = total - (state[..., 0] - state[..., 4]).abs() - 0.01 * action[..., 0].abs()
        return total

    @torch.no_grad()
    def plan(self, state):
        state = torch.from_numpy(state)
        plans = torch.rand(self.cfg.candidates, self.cfg.horizon, 1) * 2 - 1
        if FIXED:
            best = int(self.score(state.expand(len(plans), -1), plans).argmax())
        else:
            best, best_score = 0, -float("inf")
            for k, plan in enumerate(plans):
                value = float(self.score(state, plan))
                if value > best_score:
                    best, best_score = k, value
        return float(plans[best, 0, 0])


class Memory:
    def __init__(self, size=5000):
        self.rows, self.n = np.zeros((size, 11), np.float32), 0

    def add(self, s, a, s2):
        self.rows[self.n % len(self.rows)] = np.concatenate([s, [a], s2])
        self.n += 1

    def sample(self, rng, k):
        rows = torch.from_numpy(self.rows[rng.integers(0, min(self.n, len(self.rows)), k)])
        return rows[:, :5], rows[:, 5:6], rows[:, 6:]


def run(cfg):
    rng = np.random.default_rng(cfg.seed)
    torch.manual_seed(cfg.seed)
    env, memory, model = Heater(rng), Memory(), Dynamics(cfg.hidden)
    planner = Planner(model, cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    recent, updates, state = deque(maxlen=200), 0, env.reset()
    start = time.perf_counter()
    for t in range(cfg.steps):
        action = rng.uniform(-1, 1) if t < cfg.warmup else planner.plan(state)
        following, reward, done = env.step(action)
        memory.add(state, action, following)
        recent.append(reward)
        state = env.reset() if done else following
        if t >= cfg.warmup:
            for _ in range(cfg.updates_per_step):
                s, a, s2 = memory.sample(rng, cfg.batch)
                loss = nn.functional.mse_loss(model(s, a), s2)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
    return t + 1, updates, time.perf_counter() - start


if __name__ == "__main__":
    n, m, s = run(Settings())
    print(f"env_steps={n} updates={m} seconds={s:.3f}")
