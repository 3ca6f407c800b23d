"""A2C on a river crossing: steer a ferry against a changing current to the landing stage."""
import math
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    seed: int = 3
    total_steps: int = 38_400
    n_envs: int = 8 if FIXED else 1
    n_steps: int = 8 if FIXED else 64
    gamma: float = 0.98
    gae_lambda: float = 0.95


class Crossing:
    """Five rudder positions; the landing is at (1, 0)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.x, self.y, self.heading, self.t = 0.0, float(self.rng.uniform(-0.5, 0.5)), 0.0, 0
        self.phase = float(self.rng.uniform(0, 2 * math.pi))
        return self._obs()

    def _current(self):
        return 0.02 * math.sin(self.phase + 4.0 * self.x)

    def _obs(self):
        return np.array([self.x, self.y, math.sin(self.heading), math.cos(self.heading), self._current() * 50,
                         self.t / 120], dtype=np.float32)

    def step(self, action):
        self.heading = max(-1.4, min(1.4, self.heading + 0.12 * (action - 2)))
        before = math.hypot(1 - self.x, self.y)
        self.x += 0.015 * math.cos(self.heading)
        self.y += 0.015 * math.sin(self.heading) + self._current()
        self.t += 1
        after = math.hypot(1 - self.x, self.y)
        landed = after < 0.06
        done = landed or self.t >= 120 or abs(self.y) > 1.2 or self.x > 1.1
        return self._obs(), 10 * (before - after) + (5.0 if landed else 0.0), done, {}


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.vf = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.action_net = nn.Linear(hidden, n_actions)
        self.value_net = nn.Linear(hidden, 1)

    def forward(self, obs):
        return self.action_net(self.pi(obs)), self.value_net(self.vf(obs)).squeeze(-1)


class A2C:
    def __init__(self, cfg):
        self.cfg = cfg
        self.envs = [Crossing(cfg.seed + i) for i in range(cfg.n_envs)]
        self.policy = ActorCritic(6, 5)
        self.optim = torch.optim.RMSprop(self.policy.parameters(), lr=7e-4, eps=1e-5, foreach=True)
        self.last_obs = np.stack([e.reset() for e in self.envs])
        self.num_timesteps = self.n_updates = 0

    @torch.no_grad()
    def collect_rollouts(self):
        c = self.cfg
        self.obs = np.zeros((c.n_steps, c.n_envs, 6), np.float32)
        self.actions = np.zeros((c.n_steps, c.n_envs), np.int64)
        self.rewards, self.dones, self.values = (np.zeros((c.n_steps, c.n_envs), np.float32) for _ in range(3))
        for t in range(c.n_steps):
            logits, value = self.policy(torch.from_numpy(self.last_obs))
            action = torch.multinomial(F.softmax(logits, -1), 1).squeeze(-1).numpy()
            self.obs[t], self.actions[t], self.values[t] = self.last_obs, action, value.numpy()
            nxt = []
            for i, env in enumerate(self.envs):
                o, self.rewards[t, i], done, _ = env.step(int(action[i]))
                self.dones[t, i] = done
                nxt.append(env.reset() if done else o)
            self.last_obs = np.stack(nxt)
            self.num_timesteps += c.n_envs
        last_value = self.policy(torch.from_numpy(self.last_obs))[1].numpy()
        self.advantages, running = np.zeros_like(self.rewards), 0.0
        for t in reversed(range(c.n_steps)):
            alive = 1.0 - self.dones[t]
            following = last_value if t == c.n_steps - 1 else self.values[t + 1]
            delta = self.rewards[t] + c.gamma * alive * following - self.values[t]
            running = delta + c.gamma * c.gae_lambda * alive * running
            self.advantages[t] = running

    def train(self):
        adv = torch.from_numpy(self.advantages.reshape(-1))
        returns = adv + torch.from_numpy(self.values.reshape(-1))
        logits, value = self.policy(torch.from_numpy(self.obs.reshape(-1, 6)))
        logp = F.log_softmax(logits, -1)
        chosen = logp.gather(1, torch.from_numpy(self.actions.reshape(-1, 1))).squeeze(1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(adv * chosen).mean() + 0.5 * F.mse_loss(value, returns) - 0.01 * entropy
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 0.5)
        self.optim.step()
        self.n_updates += 1

    def learn(self):
        while self.num_timesteps < self.cfg.total_steps:
            self.collect_rollouts()
            self.train()


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    model = A2C(cfg)
    start = time.perf_counter()
    model.learn()
    print(f"env_steps={model.num_timesteps} updates={model.n_updates} seconds={time.perf_counter() - start:.3f}")
