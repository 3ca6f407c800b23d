"""Model-based RL on Pendulum: an ensemble of dynamics models and an MPPI planner."""
import math
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"
ITERATIONS = 8
EPOCHS = 9
STEPS_PER_ITERATION = 60
RANDOM_STEPS = 900
MEMBERS = 4
SAMPLES = 64
HORIZON = 12


class Ensemble(nn.Module):
    """Members side by side in batched matrices; predicts the change of the observation."""

    def __init__(self, width=64):
        super().__init__()
        sizes = [4, width, width, 3]
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.randn(MEMBERS, a, b) / math.sqrt(a)) for a, b in zip(sizes, sizes[1:])])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(MEMBERS, 1, b)) for b in sizes[1:]])
        self.register_buffer("scale", torch.tensor([1.0, 1.0, 8.0]))

    def forward(self, x):
        for i, (w, b) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(b, x, w)
            if i < 2:
                x = nn.functional.silu(x)
        return x

    def step(self, obs, action):
        return obs + self(torch.cat([obs / self.scale, action], dim=-1)) * self.scale


class Replay:
    def __init__(self):
        self.inputs, self.changes = [], []

    def add(self, obs, action, after):
        scale = np.array([1.0, 1.0, 8.0])
        self.inputs.append(np.concatenate([obs / scale, action / 2.0]))
        self.changes.append((after - obs) / scale)

    def dataset(self):
        x = torch.as_tensor(np.array(self.inputs), dtype=torch.float32)
        y = torch.as_tensor(np.array(self.changes), dtype=torch.float32)
        return TensorDataset(x, y)


class Planner:
    def __init__(self, model):
        self.model = model
        self.mean = torch.zeros(HORIZON, 1)

    @torch.no_grad()
    def act(self, obs):
        noise = 0.5 * torch.randn(SAMPLES, HORIZON, 1)
        plans = (self.mean + noise).clamp(-1.0, 1.0)
        state = torch.as_tensor(obs, dtype=torch.float32).expand(MEMBERS, SAMPLES, 3)
        cost = torch.zeros(MEMBERS, SAMPLES)
        for t in range(HORIZON):
            action = plans[:, t].expand(MEMBERS, SAMPLES, 1)
            state = self.model.step(state, action)
            angle = torch.atan2(state[..., 1], state[..., 0])
            cost += angle**2 + 0.1 * state[..., 2] ** 2
        weight = torch.softmax(-cost.mean(0), dim=0)
        self.mean = (weight.view(-1, 1, 1) * plans).sum(0)
        action = self.mean[0].clone()
        self.mean = torch.cat([self.mean[1:], torch.zeros(1, 1)])
        return 2.0 * action.numpy()


def fit(model, optimizer, replay, generator):
    loader = DataLoader(replay.dataset(), batch_size=128, shuffle=True, drop_last=True,
                        num_workers=2, persistent_workers=FIXED, generator=generator)
    updates, losses = 0, []
    for _ in range(EPOCHS):
        for x, y in loader:
            keep = (torch.rand(MEMBERS, len(x), 1) < 0.8).float()
            error = (model(x.expand(MEMBERS, -1, -1)) - y) ** 2
            loss = (keep * error).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            updates += 1
    return updates, float(np.mean(losses))


def collect(env, obs, policy, replay, count):
    total = 0.0
    for _ in range(count):
        action = policy(obs)
        after, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, after)
        total += float(reward)
        obs = env.reset()[0] if terminated or truncated else after
    return obs, total / count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)
    env = gym.make("Pendulum-v1")
    env.action_space.seed(2)
    obs, _ = env.reset(seed=2)
    model, replay = Ensemble(), Replay()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    planner = Planner(model)
    obs, _ = collect(env, obs, lambda _: env.action_space.sample(), replay, RANDOM_STEPS)
    steps = updates = 0
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        done, loss = fit(model, optimizer, replay, generator)
        obs, reward = collect(env, obs, planner.act, replay, STEPS_PER_ITERATION)
        updates += done
        steps += STEPS_PER_ITERATION
    seconds = time.perf_counter() - start
    env.close()
    print(f"model loss {loss:.5f} reward per step {reward:.3f}")
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
