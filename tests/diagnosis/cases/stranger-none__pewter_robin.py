"""PETS-like control of MountainCarContinuous: ensemble dynamics and a cross-entropy planner."""
import math
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 90
FIT_EVERY = 10
UPDATES_PER_FIT = 25
RANDOM_STEPS = 600
MEMBERS = 5
POPULATION = 200
ELITES = 20
HORIZON = 15
REFINEMENTS = 3
SCALE = (1.0, 0.05)


class Ensemble(nn.Module):
    """All members in one batched matrix product per layer; mean and log variance of the change."""

    def __init__(self, width=128):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(MEMBERS, 3, width) / math.sqrt(3))
        self.b1 = nn.Parameter(torch.zeros(MEMBERS, 1, width))
        self.w2 = nn.Parameter(torch.randn(MEMBERS, width, width) / math.sqrt(width))
        self.b2 = nn.Parameter(torch.zeros(MEMBERS, 1, width))
        self.w3 = nn.Parameter(0.1 * torch.randn(MEMBERS, width, 4) / math.sqrt(width))
        self.b3 = nn.Parameter(torch.zeros(MEMBERS, 1, 4))

    def forward(self, x):
        x = F.silu(torch.baddbmm(self.b1, x, self.w1))
        x = F.silu(torch.baddbmm(self.b2, x, self.w2))
        mean, logvar = torch.baddbmm(self.b3, x, self.w3).chunk(2, dim=-1)
        return mean, logvar.clamp(-8.0, 2.0)


class Replay:
    """Transitions in tensors that are allocated once."""

    def __init__(self, capacity):
        self.inputs = torch.zeros(capacity, 3)
        self.changes = torch.zeros(capacity, 2)
        self.scale = torch.tensor(SCALE)
        self.size = 0

    def add(self, obs, action, after):
        obs, after = torch.from_numpy(obs) / self.scale, torch.from_numpy(after) / self.scale
        self.inputs[self.size, :2] = obs
        self.inputs[self.size, 2] = float(action[0])
        self.changes[self.size] = 10.0 * (after - obs)
        self.size += 1

    def sample(self, count):
        pick = torch.randint(self.size, (MEMBERS, count))
        return self.inputs[pick], self.changes[pick]


class Planner:
    def __init__(self, model):
        self.model = model
        self.mean = torch.zeros(HORIZON)

    def returns(self, obs, plans):
        """Mean return of every plan over the members, with the state noise of each member."""
        state = obs.expand(MEMBERS, POPULATION, 2)
        actions = plans.t().reshape(HORIZON, 1, POPULATION, 1).expand(-1, MEMBERS, -1, -1)
        noise = torch.randn(HORIZON, MEMBERS, POPULATION, 2)
        total = torch.zeros(MEMBERS, POPULATION)
        for t in range(HORIZON):
            mean, logvar = self.model(torch.cat([state, actions[t]], dim=-1))
            state = state + 0.1 * torch.addcmul(mean, noise[t], torch.exp(0.5 * logvar))
            height = torch.sin(3.0 * state[..., 0])
            total += height + 0.5 * state[..., 1].abs()
        return total.mean(0) - 0.01 * plans.square().sum(1)

    @torch.no_grad()
    def act(self, obs):
        obs = torch.from_numpy(obs) / torch.tensor(SCALE)
        mean, std = self.mean, torch.full((HORIZON,), 0.7)
        for _ in range(REFINEMENTS):
            plans = (mean + std * torch.randn(POPULATION, HORIZON)).clamp_(-1.0, 1.0)
            best = self.returns(obs, plans).topk(ELITES).indices
            elite = plans[best]
            mean, std = elite.mean(0), elite.std(0) + 0.05
        self.mean = torch.cat([mean[1:], torch.zeros(1)])
        return mean[:1].numpy()


def fit(model, optimizer, replay):
    for _ in range(UPDATES_PER_FIT):
        x, y = replay.sample(128)
        mean, logvar = model(x)
        loss = ((mean - y).square() * torch.exp(-logvar) + logvar).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    env = gym.make("MountainCarContinuous-v0")
    env.action_space.seed(6)
    obs, _ = env.reset(seed=6)
    model, replay = Ensemble(), Replay(RANDOM_STEPS + STEPS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    planner = Planner(model)
    for _ in range(RANDOM_STEPS):
        action = env.action_space.sample()
        after, _, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, after)
        obs = env.reset()[0] if terminated or truncated else after
    highest, updates, loss = -2.0, 0, 0.0
    start = time.perf_counter()
    for step in range(STEPS):
        if step % FIT_EVERY == 0:
            loss = fit(model, optimizer, replay)
            updates += UPDATES_PER_FIT
        action = planner.act(obs)
        after, _, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, after)
        highest = max(highest, float(after[0]))
        obs = env.reset()[0] if terminated or truncated else after
    seconds = time.perf_counter() - start
    env.close()
    print(f"highest position {highest:.3f} loss {loss:.3f}")
    print(f"env_steps={STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
