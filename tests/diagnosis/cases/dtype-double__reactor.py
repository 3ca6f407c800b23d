"""TD3-like agent with wide networks for a stirred reactor (32 reactors in one batch)."""

import copy
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
DTYPE = torch.float32 if FIXED else torch.float64


class Reactors:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.x = self.rng.uniform(-1, 1, (self.n, 10))
        return self.x.copy()

    def step(self, u):
        drift = 0.1 * np.tanh(np.roll(self.x, 1, axis=1) - self.x)
        self.x = 0.99 * self.x + drift + 0.05 * np.pad(u, ((0, 0), (0, 8))) + self.rng.normal(0, 0.01, self.x.shape)
        return self.x.copy(), -np.square(self.x).mean(1)


def wide(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 384), nn.ReLU(), nn.Linear(384, 384), nn.ReLU(), nn.Linear(384, n_out))


class Agent:
    def __init__(self):
        self.actor, self.critic = wide(10, 2), wide(12, 1)
        self.critic_target = copy.deepcopy(self.critic)
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=1e-4, foreach=True)
        self.q_opt = torch.optim.Adam(self.critic.parameters(), lr=3e-4, foreach=True)

    def act(self, x):
        with torch.no_grad():
            return self.actor(torch.as_tensor(x, dtype=DTYPE)).tanh().numpy()

    def improve(self, s, u, r, s2):
        with torch.no_grad():
            y = r + 0.98 * self.critic_target(torch.cat([s2, self.actor(s2).tanh()], 1))[:, 0]
        q_loss = (self.critic(torch.cat([s, u], 1))[:, 0] - y).square().mean()
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()
        pi_loss = -self.critic(torch.cat([s, self.actor(s).tanh()], 1)).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.critic_target.parameters()), list(self.critic.parameters()), 0.005)


def main(ticks=260, n=32, batch=512):
    torch.set_num_threads(1)
    torch.set_default_dtype(DTYPE)
    torch.manual_seed(29)
    rng = np.random.default_rng(29)
    clock = time.time()
    plant, agent = Reactors(n, 29), Agent()
    rows = torch.zeros(ticks * n, 23)
    x = plant.reset()
    updates = 0
    for t in range(ticks):
        u = np.clip(agent.act(x) + rng.normal(0, 0.1, (n, 2)), -1, 1)
        x2, r = plant.step(u)
        rows[t * n : (t + 1) * n] = torch.as_tensor(np.hstack([x, u, r[:, None], x2]), dtype=DTYPE)
        x = x2 if (t + 1) % 60 else plant.reset()
        if t >= 20:
            b = rows[torch.from_numpy(rng.integers(0, (t + 1) * n, batch))]
            agent.improve(b[:, :10], b[:, 10:12], b[:, 12], b[:, 13:])
            updates += 1
    print(f"env_steps={ticks * n} updates={updates} seconds={time.time() - clock:.2f}")


if __name__ == "__main__":
    main()
