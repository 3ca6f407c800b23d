"""A2C with n-step returns on many small hunter worlds (numpy), acting through a traced actor."""
import os
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

WORLDS, N_STEP, ITERATIONS = 32, 16, 210
GAMMA, ENT, LR = 0.97, 0.01, 1e-3


class Hunters:
    """A hunter follows a fleeing prey on a torus; +1 for a catch, the prey then jumps away."""

    DIRS = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])

    def __init__(self, n, size, seed):
        self.n, self.size = n, size
        self.rng = np.random.default_rng(seed)
        self.hunter = self.rng.integers(0, size, (n, 2))
        self.prey = self.rng.integers(0, size, (n, 2))

    def obs(self):
        gap = (self.prey - self.hunter + self.size // 2) % self.size - self.size // 2
        angle = 2 * np.pi * gap / self.size
        return np.concatenate([gap / self.size, np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)

    def step(self, actions):
        self.hunter = (self.hunter + self.DIRS[actions]) % self.size
        flees = self.rng.random(self.n) < 0.3
        self.prey = np.where(flees[:, None], self.prey + self.DIRS[self.rng.integers(0, 4, self.n)], self.prey) % self.size
        caught = (self.hunter == self.prey).all(1)
        k = int(caught.sum())
        if k:
            self.prey[caught] = self.rng.integers(0, self.size, (k, 2))
        return self.obs(), caught.astype(np.float32) - 0.01, caught


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Collector:
    def __init__(self, worlds, actor):
        self.worlds, self.actor = worlds, actor
        self.obs = torch.from_numpy(worlds.obs())
        self.policy = None

    def prepare(self):
        if self.policy is None or not FIXED:
            self.policy = torch.jit.trace(self.actor, self.obs)

    @torch.no_grad()
    def rollout(self):
        self.prepare()
        obs, acts, rews, ends = [], [], [], []
        for _ in range(N_STEP):
            probs = torch.softmax(self.policy(self.obs), dim=-1)
            act = torch.multinomial(probs, 1).squeeze(1)
            nxt, rew, end = self.worlds.step(act.numpy())
            obs.append(self.obs)
            acts.append(act)
            rews.append(torch.from_numpy(rew.astype(np.float32)))
            ends.append(torch.from_numpy(end.astype(np.float32)))
            self.obs = torch.from_numpy(nxt)
        return torch.stack(obs), torch.stack(acts), torch.stack(rews), torch.stack(ends)


def n_step_returns(rews, ends, bootstrap):
    out = torch.empty_like(rews)
    running = bootstrap
    for t in range(N_STEP - 1, -1, -1):
        running = rews[t] + GAMMA * (1 - ends[t]) * running
        out[t] = running
    return out


def main():
    torch.manual_seed(8)
    actor, critic = Actor(), Critic()
    opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=LR)
    collector = Collector(Hunters(WORLDS, 9, seed=8), actor)
    env_steps = updates = 0
    catches = 0.0
    clock = time.perf_counter()
    for it in range(1, ITERATIONS + 1):
        obs, acts, rews, ends = collector.rollout()
        env_steps += acts.numel()
        catches += ends.sum().item()
        with torch.no_grad():
            returns = n_step_returns(rews, ends, critic(collector.obs))
        values = critic(obs)
        dist = Categorical(logits=actor(obs), validate_args=False)
        adv = (returns - values).detach()
        pi_loss = -(dist.log_prob(acts) * adv).mean() - ENT * dist.entropy().mean()
        loss = pi_loss + 0.5 * (returns - values).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
        opt.step()
        updates += 1
        if it % 42 == 0:
            print(f"iteration {it} catches/step {catches / (42 * N_STEP * WORLDS):.4f} loss {loss.item():.4f}")
            catches = 0.0
    seconds = time.perf_counter() - clock
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
