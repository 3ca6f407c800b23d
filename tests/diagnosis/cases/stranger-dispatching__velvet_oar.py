"""PPO for irrigation valves: every plot has its own valve with its own number of settings."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
SETTINGS = [3, 4, 5, 3, 2, 4, 5, 3, 4, 2, 3, 5, 4, 3]
PLOTS = len(SETTINGS)


class Irrigation(gym.vector.VectorEnv):
    """Many farms at once: soil moisture per plot, sun and rain shared by a farm."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}

    def __init__(self, num_envs, horizon=48):
        self.num_envs = num_envs
        self.horizon = horizon
        self.single_observation_space = spaces.Box(-5.0, 5.0, shape=(2 * PLOTS + 2,), dtype=np.float32)
        self.single_action_space = spaces.MultiDiscrete(SETTINGS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.full_flow = np.array(SETTINGS) - 1.0

    def _restart(self, which):
        n = int(which.sum())
        self.moisture[which] = self.rng.uniform(0.2, 0.8, size=(n, PLOTS))
        self.target[which] = self.rng.uniform(0.4, 0.7, size=(n, PLOTS))
        self.sun[which] = self.rng.uniform(0.2, 1.0, size=n)
        self.t[which] = self.rng.integers(0, self.horizon, size=n)

    def _observe(self):
        return np.concatenate(
            [self.moisture, self.target, self.sun[:, None], self.t[:, None] / self.horizon], axis=1
        ).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.moisture, self.target = np.zeros((2, self.num_envs, PLOTS))
        self.sun, self.t = np.zeros(self.num_envs), np.zeros(self.num_envs, dtype=np.int64)
        self._restart(np.ones(self.num_envs, dtype=bool))
        return self._observe(), {}

    def step(self, actions):
        flow = actions / self.full_flow
        self.sun = np.clip(self.sun + self.rng.normal(0, 0.05, size=self.num_envs), 0.0, 1.0)
        self.moisture += 0.1 * flow - 0.1 * self.sun[:, None] * self.moisture
        self.moisture += self.rng.normal(0, 0.01, size=self.moisture.shape)
        self.t += 1
        reward = 0.5 - 2.0 * np.abs(self.moisture - self.target).mean(1) - 0.02 * flow.mean(1)
        over = self.t >= self.horizon
        if over.any():
            self._restart(over)
        return self._observe(), reward, np.zeros_like(over), over, {}


class Agent(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh())
        self.policy = nn.Linear(96, sum(SETTINGS))
        self.value = nn.Linear(96, 1)
        spread = [head * max(SETTINGS) + k for head, n in enumerate(SETTINGS) for k in range(n)]
        self.register_buffer("spread", torch.tensor(spread))

    def _joint(self, logits, action):
        table = logits.new_full((len(logits), PLOTS * max(SETTINGS)), -1e8)
        table[:, self.spread] = logits
        dist = Categorical(logits=table.view(len(logits), PLOTS, -1))
        if action is None:
            action = dist.sample()
        return action, dist.log_prob(action).sum(1), dist.entropy().sum(1)

    def _per_valve(self, logits, action):
        valves = [Categorical(logits=part) for part in torch.split(logits, SETTINGS, dim=1)]
        if action is None:
            action = torch.stack([valve.sample() for valve in valves], dim=1)
        logp = torch.stack([valve.log_prob(a) for valve, a in zip(valves, action.T)])
        entropy = torch.stack([valve.entropy() for valve in valves])
        return action, logp.sum(0), entropy.sum(0)

    def act(self, obs, action=None):
        hidden = self.trunk(obs)
        logits = self.policy(hidden)
        chosen = self._joint(logits, action) if FIXED else self._per_valve(logits, action)
        return *chosen, self.value(hidden).squeeze(-1)


def main(num_envs=16, num_steps=64, iterations=15, epochs=4, minibatch=256, gamma=0.95, lam=0.9):
    torch.set_num_threads(1)
    torch.manual_seed(8)
    envs = Irrigation(num_envs)
    agent = Agent(2 * PLOTS + 2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2e-3)
    obs_b = torch.zeros(num_steps, num_envs, 2 * PLOTS + 2)
    act_b = torch.zeros(num_steps, num_envs, PLOTS, dtype=torch.int64)
    logp_b, rew_b, done_b, val_b = (torch.zeros(num_steps, num_envs) for _ in range(4))
    obs = torch.as_tensor(envs.reset(seed=8)[0])
    updates = 0
    start = time.perf_counter()
    for iteration in range(iterations):
        with torch.no_grad():
            for t in range(num_steps):
                action, logp, _, value = agent.act(obs)
                obs_b[t], act_b[t], logp_b[t], val_b[t] = obs, action, logp, value
                nxt, reward, term, trunc, _ = envs.step(action.numpy())
                rew_b[t], done_b[t] = torch.as_tensor(reward), torch.as_tensor(term | trunc)
                obs = torch.as_tensor(nxt)
            following, last, adv_b = agent.value(agent.trunk(obs)).squeeze(-1), torch.zeros(num_envs), torch.zeros_like(rew_b)
            for t in reversed(range(num_steps)):
                alive = 1.0 - done_b[t]
                last = rew_b[t] + gamma * following * alive - val_b[t] + gamma * lam * alive * last
                adv_b[t], following = last, val_b[t]
        flat = [x.reshape(-1, *x.shape[2:]) for x in (obs_b, act_b, logp_b, adv_b, adv_b + val_b)]
        for _ in range(epochs):
            for rows in torch.randperm(num_envs * num_steps).split(minibatch):
                o, a, old, adv, ret = (x[rows] for x in flat)
                _, logp, entropy, value = agent.act(o, a)
                ratio = (logp - old).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                loss = -torch.min(adv * ratio, adv * ratio.clamp(0.8, 1.2)).mean()
                loss = loss + 0.5 * (value - ret).pow(2).mean() - 0.001 * entropy.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                updates += 1
    seconds = time.perf_counter() - start
    print(f"mean reward {rew_b.mean():.3f}")
    print(f"env_steps={iterations * num_steps * num_envs} updates={updates} seconds={seconds:.3f}")


main()
