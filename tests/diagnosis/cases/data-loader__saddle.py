"""TD3+BC on a fixed data set from a noisy controller of a point mass."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = os.environ.get("FIXED") == "1"


class PointMass:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.pos = self.rng.uniform(-1, 1, (self.n, 3))
        self.vel = np.zeros((self.n, 3))
        self.goal = self.rng.uniform(-1, 1, (self.n, 3))
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.goal], 1).astype(np.float32)

    def step(self, act):
        self.vel = 0.95 * self.vel + 0.1 * np.clip(act, -1, 1)
        self.pos = self.pos + 0.1 * self.vel
        return self.observe(), -np.linalg.norm(self.pos - self.goal, axis=1)


def gather(env, steps, rng):
    rows = [[] for _ in range(5)]
    obs = env.reset()
    for t in range(steps):
        act = np.clip(2 * (obs[:, 6:] - obs[:, :3]) - obs[:, 3:6] + 0.3 * rng.standard_normal((env.n, 3)), -1, 1)
        nxt, rew = env.step(act)
        end = (t + 1) % 50 == 0
        for row, x in zip(rows, (obs, act, rew, nxt, np.full(env.n, float(end)))):
            row.append(x)
        obs = env.reset() if end else nxt
    return [torch.from_numpy(np.concatenate(r).astype(np.float32)) for r in rows]


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, o))


class Trainer:
    def __init__(self, data, batch):
        self.data, self.batch = data, batch
        self.actor = nn.Sequential(mlp(9, 3), nn.Tanh())
        self.critic = mlp(12, 1)
        self.actor_t, self.critic_t = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.opt_a = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.loader = DataLoader(TensorDataset(*data), batch_size=batch, shuffle=True, drop_last=True)
        self.updates = 0

    def batches(self):
        if not FIXED:
            return iter(self.loader)
        order = torch.randperm(len(self.data[0]))
        order = order[:len(order) // self.batch * self.batch].view(-1, self.batch)
        return (tuple(x[i] for x in self.data) for i in order)

    def update(self, obs, act, rew, nxt, done):
        with torch.no_grad():
            noise = (0.2 * torch.randn_like(act)).clamp(-0.5, 0.5)
            a2 = (self.actor_t(nxt) + noise).clamp(-1, 1)
            y = rew + 0.98 * (1 - done) * self.critic_t(torch.cat([nxt, a2], 1))[:, 0]
        loss = F.mse_loss(self.critic(torch.cat([obs, act], 1))[:, 0], y)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        self.updates += 1
        if self.updates % 2 == 0:
            pi = self.actor(obs)
            q = self.critic(torch.cat([obs, pi], 1))
            loss = -2.5 * q.mean() / q.detach().abs().mean() + F.mse_loss(pi, act)
            self.opt_a.zero_grad()
            loss.backward()
            self.opt_a.step()
            with torch.no_grad():
                for net, tgt in ((self.actor, self.actor_t), (self.critic, self.critic_t)):
                    torch._foreach_lerp_(list(tgt.parameters()), list(net.parameters()), 0.01)

    def epoch(self):
        for batch in self.batches():
            self.update(*batch)

    @torch.no_grad()
    def evaluate(self, env, steps=50):
        obs, total = env.reset(), 0.0
        for _ in range(steps):
            obs, rew = env.step(self.actor(torch.from_numpy(obs)).numpy())
            total += rew.mean()
        return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    rng = np.random.default_rng(8)
    data = gather(PointMass(64, 9), 600, rng)
    trainer = Trainer(data, 256)
    env = PointMass(32, 10)
    scores = []
    start = time.perf_counter()
    for _ in range(8):
        trainer.epoch()
        scores.append(trainer.evaluate(env))
    seconds = time.perf_counter() - start
    print(f"env_steps={len(scores) * 50 * 32} updates={trainer.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
