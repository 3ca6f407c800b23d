"""Distributed critics for a continuous reach task: an ensemble of small Q networks and a deterministic actor."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)


class Reach:
    """A point mass pulled around by a two-dimensional force."""

    def reset(self):
        self.pos, self.vel, self.goal, self.t = rng.uniform(-1, 1, 2), np.zeros(2), rng.uniform(-1, 1, 2), 0
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.goal]).astype(np.float32)

    def step(self, force):
        self.vel = 0.9 * self.vel + 0.1 * force
        self.pos = self.pos + 0.1 * self.vel
        self.t += 1
        return self.observe(), -float(np.abs(self.pos - self.goal).sum()), self.t >= 100


def mlp(i, o, width=64, depth=3):
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(i, width), nn.LayerNorm(width), nn.ReLU()]
        i = width
    return nn.Sequential(*layers, nn.Linear(i, o))


class Agent:
    def __init__(self, members=5, tau=0.005):
        self.tau = tau
        self.actor = nn.Sequential(mlp(6, 2), nn.Tanh())
        self.critics = nn.ModuleList(mlp(8, 1) for _ in range(members))
        self.actor_t, self.critics_t = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.params = [*self.actor.parameters(), *self.critics.parameters()]
        self.shadow = [*self.actor_t.parameters(), *self.critics_t.parameters()]
        self.opt_pi = torch.optim.Adam(self.actor.parameters(), 3e-4, foreach=True)
        self.opt_q = torch.optim.Adam(self.critics.parameters(), 1e-3, foreach=True)
        self.noise = [torch.zeros_like(p) for p in self.params]
        self.drift = [torch.zeros_like(p) for p in self.params]

    @torch.no_grad()
    def act(self, obs):
        a = self.actor(torch.from_numpy(obs)[None])[0].numpy()
        return np.clip(a + rng.normal(0, 0.2, 2), -1, 1)

    @torch.no_grad()
    def track(self):
        """Moves the shadow weights, and keeps the gradients' running first and second moments."""
        if FIXED:
            grads = [p.grad for p in self.params]
            torch._foreach_lerp_(self.shadow, self.params, self.tau)
            torch._foreach_lerp_(self.drift, grads, 0.01)
            torch._foreach_mul_(self.noise, 0.99)
            torch._foreach_addcmul_(self.noise, grads, grads, 0.01)
            return
        for i, (p, s) in enumerate(zip(self.params, self.shadow)):
            s.data.copy_((1 - self.tau) * s.data + self.tau * p.data)
            self.drift[i] = 0.99 * self.drift[i] + 0.01 * p.grad
            self.noise[i] = 0.99 * self.noise[i] + 0.01 * p.grad ** 2

    def signal_to_noise(self):
        return sum((d.pow(2) / (n + 1e-8)).mean() for d, n in zip(self.drift, self.noise)) / len(self.drift)

    def update(self, obs, act, rew, nxt):
        with torch.no_grad():
            x = torch.cat([nxt, self.actor_t(nxt)], 1)
            goal = rew + 0.98 * torch.stack([q(x) for q in self.critics_t]).min(0).values
        x = torch.cat([obs, act], 1)
        loss = sum(F.mse_loss(q(x), goal) for q in self.critics)
        self.opt_q.zero_grad()
        loss.backward()
        self.opt_q.step()
        for p in self.critics.parameters():
            p.requires_grad_(False)
        gain = self.critics[0](torch.cat([obs, self.actor(obs)], 1)).mean()
        self.opt_pi.zero_grad()
        (-gain).backward()
        self.opt_pi.step()
        for p in self.critics.parameters():
            p.requires_grad_(True)
        self.track()


def main(steps=900, warmup=150, batch=64):
    env, agent = Reach(), Agent()
    store = [np.zeros((steps, n), np.float32) for n in (6, 2, 1, 6)]
    updates, obs, report = 0, env.reset(), []
    start = time.perf_counter()
    for t in range(steps):
        a = agent.act(obs) if t >= warmup else rng.uniform(-1, 1, 2)
        nxt, rew, done = env.step(a)
        for column, value in zip(store, (obs, a, rew, nxt)):
            column[t] = value
        obs = env.reset() if done else nxt
        if t >= warmup:
            pick = rng.integers(t + 1, size=batch)
            agent.update(*(torch.from_numpy(column[pick]) for column in store))
            updates += 1
        if updates and t % 300 == 0:
            report.append(float(agent.signal_to_noise()))
    seconds = time.perf_counter() - start
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
