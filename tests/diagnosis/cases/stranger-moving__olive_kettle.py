"""Soft actor-critic for a cart with a range finder that has to reach a beacon between pillars (numpy world)."""
import copy
import os
import time
from collections import deque

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

BEAMS = 32
OBS = BEAMS + 4
TOTAL_STEPS, WARMUP = 3600, 200
BATCH, GAMMA = 128, 0.98


class PillarWorld:
    def __init__(self, rng):
        self.rng, self.limit = rng, 40
        angles = np.linspace(0, 2 * np.pi, BEAMS, endpoint=False)
        self.rays = np.stack([np.cos(angles), np.sin(angles)], 1)

    def reset(self):
        self.pillars = self.rng.uniform(-3, 3, (5, 2))
        self.pos, self.vel = np.array([-3.5, 0.0]), np.zeros(2)
        self.beacon, self.t = np.array([3.5, self.rng.uniform(-2, 2)]), 0
        return self.observe()

    def observe(self):
        offset = self.pillars - self.pos
        along = self.rays @ offset.T
        miss = (offset**2).sum(1) - along**2
        hit = np.where((along > 0) & (miss < 0.16), along, 6.0).min(1)
        return np.concatenate([np.minimum(hit, 6.0) / 6.0, (self.beacon - self.pos) / 7.0, self.vel]).astype(np.float32)

    def step(self, action):
        self.t += 1
        before = np.linalg.norm(self.beacon - self.pos)
        self.vel = 0.7 * self.vel + 0.15 * action
        self.pos = np.clip(self.pos + self.vel, -4.5, 4.5)
        distance = np.linalg.norm(self.beacon - self.pos)
        bump, reached = ((self.pillars - self.pos) ** 2).sum(1).min() < 0.16, distance < 0.5
        return self.observe(), before - distance - 0.2 * bump + 2.0 * reached, bool(reached), self.t >= self.limit


class Replay:
    def __init__(self, capacity=250_000):
        self.obs, self.next_obs = np.zeros((2, capacity, OBS), np.float32)
        self.action, self.outcome = np.zeros((2, capacity, 2), np.float32)
        self.capacity, self.count = capacity, 0

    def add(self, obs, action, reward, next_obs, done):
        at = self.count % self.capacity
        self.obs[at], self.action[at], self.next_obs[at], self.outcome[at] = obs, action, next_obs, (reward, done)
        self.count += 1

    def sample(self, rng, n):
        idx = rng.integers(0, min(self.count, self.capacity), n)
        return [torch.from_numpy(x[idx]) for x in (self.obs, self.action, self.next_obs, self.outcome)]


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_out))


class Agent:
    def __init__(self):
        self.actor, self.critic1, self.critic2 = mlp(OBS, 4), mlp(OBS + 2, 1), mlp(OBS + 2, 1)
        self.target1, self.target2 = copy.deepcopy(self.critic1), copy.deepcopy(self.critic2)
        self.critics = [*self.critic1.parameters(), *self.critic2.parameters()]
        self.targets = [*self.target1.parameters(), *self.target2.parameters()]
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic_optimizer = torch.optim.Adam(self.critics, lr=1e-3)
        self.replay, self.alpha, self.updates = Replay(), 0.03, 0

    def policy(self, obs):
        mean, log_std = self.actor(obs).chunk(2, -1)
        std = log_std.clamp(-4, 1).exp()
        raw = mean + std * torch.randn_like(mean)
        action = torch.tanh(raw)
        logp = -0.5 * ((raw - mean) / std) ** 2 - std.log() - torch.log(1 - action**2 + 1e-5)
        return action, logp.sum(-1, keepdim=True)

    @torch.no_grad()
    def act(self, obs):
        return self.policy(torch.from_numpy(obs))[0].numpy()

    def apply(self, optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def learn(self, rng):
        obs, action, next_obs, outcome = self.replay.sample(rng, BATCH)
        reward, done = outcome[:, :1], outcome[:, 1:]
        with torch.no_grad():
            next_action, next_logp = self.policy(next_obs)
            pair = torch.cat([next_obs, next_action], 1)
            value = torch.min(self.target1(pair), self.target2(pair)) - self.alpha * next_logp
            goal = reward + GAMMA * (1 - done) * value
        pair = torch.cat([obs, action], 1)
        loss = F.mse_loss(self.critic1(pair), goal) + F.mse_loss(self.critic2(pair), goal)
        self.apply(self.critic_optimizer, loss)
        new_action, logp = self.policy(obs)
        actor_loss = (self.alpha * logp - self.critic1(torch.cat([obs, new_action], 1))).mean()
        self.apply(self.actor_optimizer, actor_loss)
        with torch.no_grad():
            torch._foreach_lerp_(self.targets, self.critics, 0.01)
        self.updates += 1

    def snapshot(self):
        if FIXED:
            return copy.deepcopy(self.actor)
        return copy.deepcopy(self).actor


def main():
    rng, _ = np.random.default_rng(2), torch.manual_seed(2)
    world, agent, candidates, steps = PillarWorld(rng), Agent(), deque(maxlen=5), 0
    start = time.perf_counter()
    while steps < TOTAL_STEPS:
        obs, score, over = world.reset(), 0.0, False
        while not over:
            action = agent.act(obs) if steps > WARMUP else rng.uniform(-1, 1, 2)
            next_obs, reward, reached, timeout = world.step(action)
            agent.replay.add(obs, action, reward, next_obs, reached)
            obs, score, steps, over = next_obs, score + reward, steps + 1, reached or timeout
            if steps > WARMUP and steps % 4 == 0:
                agent.learn(rng)
        candidates.append((score, agent.snapshot()))
    seconds = time.perf_counter() - start
    print("best of the last", len(candidates), "is", round(float(max(score for score, _ in candidates)), 2))
    print(f"env_steps={steps} updates={agent.updates} seconds={seconds:.2f}")


main()
