"""A small dreamer: recurrent world model from replayed episodes, actor and critic trained inside its imagination."""
import gc
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

OBS, ACTIONS, HIDDEN = 6, 4, 64
ITERATIONS, COLLECT, BATCH, SPAN, DREAM, GAMMA = 80, 50, 16, 16, 8, 0.97


@dataclass
class Step:
    obs: np.ndarray
    action: int
    reward: float


class MemoryGuard:
    """Keeps the resident size of the process near a limit."""

    def __init__(self, limit_mb):
        self.limit, self.page = limit_mb * 2 ** 20, os.sysconf("SC_PAGE_SIZE")

    def check(self):
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * self.page
        if resident > self.limit:
            gc.collect()


class Chase:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.me, self.you = self.rng.uniform(-1, 1, 2), self.rng.uniform(-1, 1, 2)
        self.drift = self.rng.normal(0, 0.03, 2)

    def observe(self):
        return np.concatenate([self.me, self.you, self.you - self.me]).astype(np.float32)

    def step(self, action):
        self.me[action // 2] += 0.1 if action % 2 else -0.1
        self.drift = 0.98 * self.drift + self.rng.normal(0, 0.005, 2)
        self.you = self.you + self.drift
        self.me, self.you = ((p + 1) % 2 - 1 for p in (self.me, self.you))
        return self.observe(), -float(np.abs(self.you - self.me).sum())


class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(OBS, HIDDEN), nn.ELU())
        self.read = nn.GRUCell(HIDDEN + ACTIONS, HIDDEN)
        self.dream = nn.GRUCell(ACTIONS, HIDDEN)
        self.decode = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, OBS + 1))

    def observe(self, state, obs, previous):
        return self.read(torch.cat([self.encode(obs), previous], -1), state)


def train_world(world, optimizer, steps, rng):
    starts = rng.integers(len(steps) - SPAN, size=BATCH)
    spans = [steps[s:s + SPAN] for s in starts]
    obs = torch.from_numpy(np.array([[s.obs for s in span] for span in spans]))
    acts = F.one_hot(torch.tensor([[s.action for s in span] for span in spans]), ACTIONS).float()
    rewards = torch.tensor([[s.reward for s in span] for span in spans])
    state, previous, states, guesses = torch.zeros(BATCH, HIDDEN), torch.zeros(BATCH, ACTIONS), [], []
    for t in range(SPAN):
        state = world.observe(state, obs[:, t], previous)
        previous = acts[:, t]
        states.append(state)
        guesses.append(world.dream(previous, state))
    guess = world.decode(torch.stack(guesses, 1))
    loss = F.mse_loss(guess[:, :-1, :OBS], obs[:, 1:]) + F.mse_loss(guess[..., OBS], rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return torch.cat(states).detach(), loss.item()


def train_behaviour(world, actor, critic, optimizer, state):
    logps, entropies, states, rewards = [], [], [state], []
    for _ in range(DREAM):
        logp = F.log_softmax(actor(state), -1)
        action = torch.multinomial(logp.detach().exp(), 1)
        with torch.no_grad():
            state = world.dream(F.one_hot(action[:, 0], ACTIONS).float(), state)
            rewards.append(world.decode(state)[:, OBS])
        logps.append(logp.gather(1, action)[:, 0])
        entropies.append(-(logp.exp() * logp).sum(-1))
        states.append(state)
    values = critic(torch.stack(states)).squeeze(-1)
    returns = [values[-1].detach()]
    for reward in reversed(rewards):
        returns.append(reward + GAMMA * returns[-1])
    returns = torch.stack(returns[:0:-1])
    advantage = returns - values[:-1].detach()
    loss = (F.mse_loss(values[:-1], returns) - 0.01 * torch.stack(entropies).mean()
            - (advantage / (advantage.std() + 1e-6) * torch.stack(logps)).mean())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(17)
    rng, env, world = np.random.default_rng(17), Chase(17), World()
    actor = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, ACTIONS))
    critic = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ELU(), nn.Linear(HIDDEN, 1))
    world_opt = torch.optim.Adam(world.parameters(), lr=2e-3)
    mind_opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    guard = MemoryGuard(limit_mb=6000 if FIXED else 160)
    steps, updates, obs, state, previous = [], 0, env.observe(), torch.zeros(1, HIDDEN), torch.zeros(1, ACTIONS)
    begin = time.perf_counter()
    for iteration in range(ITERATIONS):
        for _ in range(COLLECT):
            with torch.no_grad():
                state = world.observe(state, torch.from_numpy(obs)[None], previous)
                action = int(torch.multinomial(actor(state).softmax(-1), 1))
            following, reward = env.step(action)
            steps.append(Step(obs, action, reward))
            previous, obs = F.one_hot(torch.tensor([action]), ACTIONS).float(), following
        states, loss = train_world(world, world_opt, steps, rng)
        train_behaviour(world, actor, critic, mind_opt, states)
        updates += 2
        if iteration % 5 == 4:
            guard.check()
            print(f"iteration {iteration}: model {loss:.3f} reward {np.mean([s.reward for s in steps[-200:]]):.3f}")
    print(f"env_steps={len(steps)} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
