"""PPO written out by hand on Pendulum, with a chain of gymnasium wrappers around it."""
import os
import statistics
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

TOTAL_STEPS = 18432
ROLLOUT = 768
EPOCHS = 6
MINIBATCH = 128
GAMMA, LAMBDA, CLIP = 0.95, 0.92, 0.2


class AngleObservation(gym.ObservationWrapper):
    """Pendulum gives cos and sin; the speed is divided so that all of it is about one."""

    def observation(self, obs):
        return np.array([obs[0], obs[1], obs[2] / 4.0], np.float32)


class RelativeReward(gym.Wrapper):
    """Rewards relative to how the last `window` of them spread."""

    def __init__(self, env, window=150):
        super().__init__(env)
        self.window = deque(maxlen=window)
        self.total = self.squares = 0.0

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        info["raw_reward"] = reward
        return obs, self.relative(float(reward)), terminated, truncated, info

    def spread(self):
        if FIXED:
            n = len(self.window)
            return max(self.squares / n - (self.total / n) ** 2, 0.0) ** 0.5
        return statistics.pstdev(self.window)

    def relative(self, reward):
        if len(self.window) == self.window.maxlen:
            gone = self.window[0]
            self.total, self.squares = self.total - gone, self.squares - gone * gone
        self.window.append(reward)
        self.total, self.squares = self.total + reward, self.squares + reward * reward
        return reward / (self.spread() + 0.5)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.value = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def log_prob(self, mean, action):
        return (-0.5 * ((action - mean) / self.log_std.exp()) ** 2 - self.log_std).squeeze(-1)

    @torch.no_grad()
    def act(self, obs, rng):
        mean = self.mean(torch.from_numpy(obs)).numpy()
        return mean + np.exp(self.log_std.numpy()) * rng.standard_normal(1, dtype=np.float32)


def collect(env, obs, policy, rng, finished):
    seen = np.zeros((ROLLOUT + 1, 3), np.float32)
    actions = np.zeros((ROLLOUT, 1), np.float32)
    rewards, ends = np.zeros(ROLLOUT), np.zeros(ROLLOUT)
    for t in range(ROLLOUT):
        seen[t] = obs
        actions[t] = policy.act(obs, rng)
        obs, rewards[t], terminated, truncated, info = env.step(np.clip(2 * actions[t], -2, 2))
        finished[-1] += info["raw_reward"]
        if terminated or truncated:
            ends[t] = 1.0
            finished.append(0.0)
            obs, _ = env.reset()
    seen[ROLLOUT] = obs
    return obs, torch.from_numpy(seen), torch.from_numpy(actions), rewards, ends


def advantages(values, rewards, ends):
    result, running = np.zeros(ROLLOUT, np.float32), 0.0
    delta = rewards + GAMMA * values[1:] * (1 - ends) - values[:-1]
    for t in range(ROLLOUT - 1, -1, -1):
        running = delta[t] + GAMMA * LAMBDA * (1 - ends[t]) * running
        result[t] = running
    return torch.from_numpy(result)


def improve(policy, optimizer, seen, actions, rewards, ends):
    with torch.no_grad():
        values = policy.value(seen).squeeze(-1)
        old = policy.log_prob(policy.mean(seen[:-1]), actions)
    gain = advantages(values.numpy(), rewards, ends)
    returns = gain + values[:-1]
    gain = (gain - gain.mean()) / (gain.std() + 1e-6)
    count = 0
    for _ in range(EPOCHS):
        for idx in torch.randperm(ROLLOUT).split(MINIBATCH):
            ratio = (policy.log_prob(policy.mean(seen[idx]), actions[idx]) - old[idx]).exp()
            surrogate = torch.min(ratio * gain[idx], ratio.clamp(1 - CLIP, 1 + CLIP) * gain[idx]).mean()
            value_loss = (policy.value(seen[idx]).squeeze(-1) - returns[idx]).pow(2).mean()
            optimizer.zero_grad()
            (0.5 * value_loss - surrogate).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()
            count += 1
    return count


rng = np.random.default_rng(6)
torch.manual_seed(6)
env = RelativeReward(AngleObservation(gym.make("Pendulum-v1")))
policy = Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
obs, _ = env.reset(seed=6)
finished, updates = [0.0], 0
start = time.perf_counter()
for _ in range(TOTAL_STEPS // ROLLOUT):
    obs, *rollout = collect(env, obs, policy, rng, finished)
    updates += improve(policy, optimizer, *rollout)
seconds = time.perf_counter() - start
print("return of the last episodes:", round(float(np.mean(finished[-6:-1])), 1))
print(f"env_steps={TOTAL_STEPS} updates={updates} seconds={seconds:.2f}")
