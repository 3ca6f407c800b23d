"""Population based training of small actor-critics on a batched cart-pole."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


@dataclass
class PBTConfig:
    members: int = 4
    generations: int = 40
    num_envs: int = 32
    rollout: int = 16
    epochs: int = 2
    eval_steps: int = 32
    gamma: float = 0.98
    seed: int = 2


class CartPoleBatch:
    def __init__(self, n, generator):
        self.n, self.generator = n, generator

    def start_states(self, n):
        return 0.1 * torch.rand(n, 4, generator=self.generator) - 0.05

    def reset(self):
        self.state = self.start_states(self.n)
        return self.state

    def step(self, action):
        x, v, a, w = self.state.unbind(1)
        force, sin, cos = 20.0 * action - 10.0, a.sin(), a.cos()
        push = (force + 0.05 * w * w * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
        slide = push - 0.05 * turn * cos / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * slide, a + 0.02 * w, w + 0.02 * turn], 1)
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.21)
        self.state = torch.where(done[:, None], self.start_states(self.n), self.state)
        return self.state, 1.0 - done.float(), done


class Policy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, 0.5, 5.0, 0.5]))
        self.body = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor, self.critic = nn.Linear(hidden, 2), nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs * self.scale)
        return self.actor(h), self.critic(h).squeeze(-1)


class Member:
    def __init__(self, cfg, rng, generator):
        self.cfg, self.env, self.policy = cfg, CartPoleBatch(cfg.num_envs, generator), Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=10 ** rng.uniform(-3.5, -2))
        self.entropy, self.obs, self.score = 10 ** rng.uniform(-3, -1.5), self.env.reset(), 0.0
        self.steps = self.updates = 0

    def collect(self):
        rows = []
        with torch.no_grad():
            for _ in range(self.cfg.rollout):
                logits, _ = self.policy(self.obs)
                act = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
                nxt, rew, done = self.env.step(act)
                rows.append((self.obs, act, rew, 1.0 - done.float()))
                self.obs = nxt
            run, returns = self.policy(self.obs)[1], []
            for _, _, rew, alive in reversed(rows):
                run = rew + self.cfg.gamma * alive * run
                returns.append(run)
        self.steps += self.cfg.rollout * self.cfg.num_envs
        obs, act, _, _ = map(torch.cat, zip(*rows))
        return obs, act, torch.cat(returns[::-1])

    def train(self):
        obs, act, returns = self.collect()
        with torch.no_grad():
            logits, value = self.policy(obs)
            old, adv = -F.cross_entropy(logits, act, reduction="none"), returns - value
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        for _ in range(self.cfg.epochs):
            logits, value = self.policy(obs)
            logp = logits.log_softmax(-1)
            ratio = (logp.gather(1, act[:, None])[:, 0] - old).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = loss + 0.01 * F.mse_loss(value, returns) + self.entropy * (logp.exp() * logp).sum(1).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.updates += 1

    def deploy(self):
        actor = self.policy.eval()
        return actor if FIXED else torch.jit.optimize_for_inference(torch.jit.script(actor))

    def evaluate(self, env):
        actor, obs, falls = self.deploy(), env.reset(), 0.0
        with torch.no_grad():
            for _ in range(self.cfg.eval_steps):
                obs, _, done = env.step(actor(obs)[0].argmax(-1))
                falls += done.float().mean().item()
        self.steps += self.cfg.eval_steps * env.n
        self.score = 0.7 * self.score - 0.3 * falls

    def copy_from(self, other, rng):
        self.policy.load_state_dict(other.policy.state_dict())
        self.opt.load_state_dict(other.opt.state_dict())
        for group in self.opt.param_groups:
            group["lr"] *= rng.choice([0.8, 1.25])
        self.entropy, self.score = other.entropy * rng.choice([0.8, 1.25]), other.score


cfg = PBTConfig()
torch.manual_seed(cfg.seed)
rng, generator = np.random.default_rng(cfg.seed), torch.Generator().manual_seed(cfg.seed)
population, curve = [Member(cfg, rng, generator) for _ in range(cfg.members)], []
eval_env = CartPoleBatch(cfg.num_envs, generator)
start = time.perf_counter()
for generation in range(cfg.generations):
    for member in population:
        member.train()
        member.evaluate(eval_env)
    population.sort(key=lambda m: m.score, reverse=True)
    curve.append(np.mean([m.score for m in population]))
    if generation % 4 == 3:
        population[-1].copy_from(population[0], rng)
seconds = time.perf_counter() - start
print(f"mean score {curve[0]:.2f} -> {curve[-1]:.2f}")
print(f"env_steps={sum(m.steps for m in population)} updates={sum(m.updates for m in population)} seconds={seconds:.3f}")
