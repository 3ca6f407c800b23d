"""Goal-conditioned TD3 with hindsight goals: a two-joint arm on a table reaches for marks."""
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)

ARMS, LIMIT = 16, 40
ROUNDS, UPDATES_PER_ROUND = 45, 40
BATCH, HIDDEN = 256, 128
GAMMA = 0.93
HINDSIGHT, TOLERANCE = 0.8, 0.2


class Arms:
    """ARMS arms side by side; links of length 1 and 0.7."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.angle = self.rng.uniform(-np.pi, np.pi, (ARMS, 2))
        self.speed = np.zeros((ARMS, 2))
        direction = self.rng.uniform(-np.pi, np.pi, ARMS)
        radius = self.rng.uniform(0.5, 1.6, ARMS)
        self.goal = np.stack([radius * np.cos(direction), radius * np.sin(direction)], 1).astype(np.float32)
        return self.observe()

    def hand(self):
        first, second = self.angle[:, 0], self.angle.sum(1)
        return np.stack([np.cos(first) + 0.7 * np.cos(second), np.sin(first) + 0.7 * np.sin(second)], 1)

    def observe(self):
        return np.concatenate([np.cos(self.angle), np.sin(self.angle), 3 * self.speed, self.hand()], 1).astype(np.float32)

    def step(self, action):
        self.speed = 0.6 * self.speed + 0.12 * action
        self.angle = self.angle + self.speed
        return self.observe()


class EpisodeStore:
    """Whole episodes in arrays (episode, time, ...); goals are swapped when a batch is drawn."""

    def __init__(self, capacity=600):
        self.obs = np.zeros((capacity, LIMIT + 1, 8), np.float32)
        self.action = np.zeros((capacity, LIMIT, 2), np.float32)
        self.goal = np.zeros((capacity, 2), np.float32)
        self.capacity, self.count = capacity, 0

    def add(self, obs, action, goal):
        at = (self.count + np.arange(ARMS)) % self.capacity
        self.obs[at], self.action[at], self.goal[at] = obs, action, goal
        self.count += ARMS

    def sample(self, rng):
        episode, t = rng.integers(0, min(self.count, self.capacity), BATCH), rng.integers(0, LIMIT, BATCH)
        later = t + 1 + (rng.random(BATCH) * (LIMIT - t)).astype(int)
        swap = rng.random((BATCH, 1)) < HINDSIGHT
        obs, next_obs = self.obs[episode, t], self.obs[episode, t + 1]
        goal = np.where(swap, self.obs[episode, later, 6:8], self.goal[episode])
        hit = np.linalg.norm(next_obs[:, 6:8] - goal, axis=1, keepdims=True) < TOLERANCE
        reward = np.where(hit, 0.0, -1.0).astype(np.float32)
        batch = (np.hstack([obs, goal]), self.action[episode, t], reward, np.hstack([next_obs, goal]))
        return [torch.from_numpy(x) for x in batch]


def mlp(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, n_out))


class TD3:
    def __init__(self):
        self.actor, self.actor_target = mlp(10, 2), mlp(10, 2)
        self.critics = nn.ModuleList([mlp(12, 1), mlp(12, 1)])
        self.critic_targets = nn.ModuleList([mlp(12, 1), mlp(12, 1)])
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_targets.load_state_dict(self.critics.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=1e-3, foreach=True)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=1e-3, foreach=True)
        self.online = [*self.actor.parameters(), *self.critics.parameters()]
        self.slow = [*self.actor_target.parameters(), *self.critic_targets.parameters()]
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, goal):
        return torch.tanh(self.actor(torch.from_numpy(np.hstack([obs, goal])))).numpy()

    def update(self, obs, action, reward, next_obs):
        with torch.no_grad():
            noise = (0.1 * torch.randn_like(action)).clamp(-0.3, 0.3)
            next_action = (torch.tanh(self.actor_target(next_obs)) + noise).clamp(-1, 1)
            pair = torch.cat([next_obs, next_action], 1)
            value = torch.min(self.critic_targets[0](pair), self.critic_targets[1](pair))
            target = (reward + GAMMA * value).clamp(-1 / (1 - GAMMA), 0.0)
        pair = torch.cat([obs, action], 1)
        loss = sum(F.mse_loss(critic(pair), target) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        self.updates += 1
        if self.updates % 2 == 0:
            chosen = torch.tanh(self.actor(obs))
            self.critics.requires_grad_(False)
            actor_loss = -self.critics[0](torch.cat([obs, chosen], 1)).mean() + 0.02 * chosen.pow(2).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            self.critics.requires_grad_(True)
            with torch.no_grad():
                torch._foreach_lerp_(self.slow, self.online, 0.02)


def main():
    rng = np.random.default_rng(21)
    torch.manual_seed(21)
    arms, store, agent = Arms(rng), EpisodeStore(), TD3()
    obs_log = np.zeros((ARMS, LIMIT + 1, 8), np.float32)
    action_log = np.zeros((ARMS, LIMIT, 2), np.float32)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        obs_log[:, 0] = arms.reset()
        for t in range(LIMIT):
            action = agent.act(obs_log[:, t], arms.goal) + 0.2 * rng.standard_normal((ARMS, 2), dtype=np.float32)
            wild = rng.random((ARMS, 1)) < 0.2
            action_log[:, t] = np.where(wild, rng.uniform(-1, 1, (ARMS, 2)), np.clip(action, -1, 1))
            obs_log[:, t + 1] = arms.step(action_log[:, t])
        store.add(obs_log, action_log, arms.goal)
        for _ in range(UPDATES_PER_ROUND):
            agent.update(*store.sample(rng))
    seconds = time.perf_counter() - start
    reached = np.linalg.norm(obs_log[:, -1, 6:8] - arms.goal, axis=1) < TOLERANCE
    print("hands on the mark at the end:", round(float(reached.mean()), 2))
    print(f"env_steps={ROUNDS * LIMIT * ARMS} updates={agent.updates} seconds={seconds:.2f}")


main()
