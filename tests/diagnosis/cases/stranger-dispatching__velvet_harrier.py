"""MAPPO with a set network: four point agents spread over four landmarks, sixteen worlds at once."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

FIXED = os.environ.get("FIXED") == "1"

ENVS, AGENTS, MARKS, HORIZON = 16, 4, 4, 40
OBS = 4 + 2 * MARKS
PUSH = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)
STEPS, BATCH, EPOCHS, ITERATIONS = 64, 128, 4, 46
GAMMA, LAM = 0.98, 0.95


class Spread:
    def __init__(self, rng):
        self.rng = rng
        self.pos, self.vel = np.zeros((ENVS, AGENTS, 2)), np.zeros((ENVS, AGENTS, 2))
        self.marks = np.zeros((ENVS, MARKS, 2))
        self.t = np.zeros(ENVS, np.int64)
        self.restart(np.ones(ENVS, bool))
        self.t += rng.integers(HORIZON, size=ENVS)

    def restart(self, which):
        count = int(which.sum())
        self.pos[which] = self.rng.uniform(-1, 1, (count, AGENTS, 2))
        self.marks[which] = self.rng.uniform(-1, 1, (count, MARKS, 2))
        self.vel[which] = 0.0
        self.t[which] = 0

    def observe(self):
        rel = self.marks[:, None] - self.pos[:, :, None]
        flat = rel.reshape(ENVS, AGENTS, -1)
        return torch.from_numpy(np.concatenate([self.pos, self.vel, flat], -1).astype(np.float32))

    def step(self, action):
        self.vel = 0.5 * self.vel + 0.1 * PUSH[action]
        self.pos = np.clip(self.pos + self.vel, -1, 1)
        gap = self.marks[:, None] - self.pos[:, :, None]
        reward = -np.sqrt((gap ** 2).sum(-1)).min(1).mean(-1)
        self.t += 1
        done = self.t >= HORIZON
        if done.any():
            self.restart(done)
        return self.observe(), reward.astype(np.float32), done


class SetPolicy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh())
        self.mix = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh())
        self.actor, self.critic = nn.Linear(hidden, len(PUSH)), nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.embed(obs)
        z = self.mix(torch.cat([h, h.mean(1, keepdim=True).expand_as(h)], -1))
        return self.actor(z).log_softmax(-1), self.critic(z.mean(1)).squeeze(-1)


@torch.no_grad()
def rollout(env, policy, obs, gen):
    store = {"obs": [], "act": [], "logp": [], "value": [], "reward": [], "done": []}
    for _ in range(STEPS):
        logp, value = policy(obs)
        act = torch.multinomial(logp.exp().view(-1, len(PUSH)), 1, generator=gen).view(ENVS, AGENTS)
        store["obs"].append(obs)
        store["act"].append(act)
        store["logp"].append(logp.gather(-1, act[..., None]).squeeze(-1))
        store["value"].append(value)
        obs, reward, done = env.step(act.numpy())
        store["reward"].append(torch.from_numpy(reward))
        store["done"].append(torch.from_numpy(done))
    last = policy(obs)[1]
    return {k: torch.stack(v) for k, v in store.items()}, obs, last


def advantages(data, last):
    adv, run = torch.zeros(STEPS, ENVS), torch.zeros(ENVS)
    alive = 1.0 - data["done"].float()
    values = torch.cat([data["value"], last[None]])
    for t in reversed(range(STEPS)):
        delta = data["reward"][t] + GAMMA * alive[t] * values[t + 1] - values[t]
        run = delta + GAMMA * LAM * alive[t] * run
        adv[t] = run
    return adv


def minibatches(tensors, gen):
    dataset = TensorDataset(*tensors)
    order = RandomSampler(dataset, generator=gen)
    if FIXED:
        return DataLoader(dataset, sampler=BatchSampler(order, BATCH, False), batch_size=None)
    return DataLoader(dataset, sampler=order, batch_size=BATCH)


def update(policy, opt, data, adv, gen):
    flat = {k: v.flatten(0, 1) for k, v in data.items()}
    ret = adv.flatten() + flat["value"]
    norm = ((adv - adv.mean()) / (adv.std() + 1e-8)).flatten()
    tensors = (flat["obs"], flat["act"], flat["logp"], flat["value"], norm, ret)
    count = 0
    for _ in range(EPOCHS):
        for obs, act, old, val, a, r in minibatches(tensors, gen):
            logp, value = policy(obs)
            ratio = (logp.gather(-1, act[..., None]).squeeze(-1) - old).exp()
            a = a[:, None]
            gain = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
            near = val + (value - val).clamp(-0.2, 0.2)
            vloss = torch.max(F.mse_loss(value, r, reduction="none"), (near - r) ** 2).mean()
            entropy = -(logp.exp() * logp).sum(-1).mean()
            opt.zero_grad()
            (-gain + 0.5 * vloss - 0.01 * entropy).backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            opt.step()
            count += 1
    return count


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    gen = torch.Generator().manual_seed(3)
    env, policy = Spread(np.random.default_rng(3)), SetPolicy()
    opt = torch.optim.Adam(policy.parameters(), lr=7e-4)
    obs, updates, means = env.observe(), 0, []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        data, obs, last = rollout(env, policy, obs, gen)
        updates += update(policy, opt, data, advantages(data, last), gen)
        means.append(data["reward"].mean().item())
    seconds = time.perf_counter() - start
    print(f"reward first={means[0]:.3f} last={means[-1]:.3f}")
    print(f"env_steps={ITERATIONS * STEPS * ENVS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
