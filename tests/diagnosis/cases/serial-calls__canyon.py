"""Cooperative gathering with a team that shares one policy (independent actor-critic, team reward)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

TEAM = 6
SIZE = 12
HORIZON = 40
EPISODES = 110
GAMMA = 0.95
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


class Gathering:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos = self.rng.integers(0, SIZE, (TEAM, 2))
        self.food = self.rng.integers(0, SIZE, (8, 2))
        self.t = 0
        return self.observe()

    def observe(self):
        own = self.pos / SIZE
        rel = (self.food[None] - self.pos[:, None]) / SIZE
        mates = (self.pos.mean(0) - self.pos) / SIZE
        obs = np.concatenate([own, rel.reshape(TEAM, -1), mates], axis=1).astype(np.float32)
        return {f"walker_{i}": obs[i] for i in range(TEAM)}

    def step(self, actions):
        self.pos = np.clip(self.pos + MOVES[[actions[f"walker_{i}"] for i in range(TEAM)]], 0, SIZE - 1)
        hit = (self.food[:, None] == self.pos[None]).all(-1).any(1)
        n = int(hit.sum())
        if n:
            self.food[hit] = self.rng.integers(0, SIZE, (n, 2))
        self.t += 1
        return self.observe(), float(n) - 0.05, self.t >= HORIZON


class SharedPolicy(nn.Module):
    def __init__(self, obs_dim=20, hidden=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.actor = nn.Linear(hidden, len(MOVES))
        self.critic = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.body(x)
        return self.actor(h), self.critic(h).squeeze(-1)


class Team:
    def __init__(self, policy):
        self.policy = policy

    @torch.no_grad()
    def act(self, observations):
        if FIXED:
            names = list(observations)
            logits, _ = self.policy(torch.from_numpy(np.stack([observations[n] for n in names])))
            picks = Categorical(logits=logits, validate_args=False).sample().tolist()
            return dict(zip(names, picks))
        actions = {}
        for name, obs in observations.items():
            logits, _ = self.policy(torch.from_numpy(obs))
            actions[name] = int(Categorical(logits=logits, validate_args=False).sample())
        return actions


def discounted(rewards):
    out, g = np.zeros(len(rewards), np.float32), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        g = rewards[t] + GAMMA * g
        out[t] = g
    return out


def learn(policy, optimizer, obs, actions, returns, epochs=10):
    obs, actions = torch.from_numpy(obs), torch.from_numpy(actions)
    returns = torch.from_numpy(returns)
    for _ in range(epochs):
        logits, value = policy(obs)
        dist = Categorical(logits=logits, validate_args=False)
        adv = returns - value.detach()
        loss = -(dist.log_prob(actions) * adv).mean() + 0.5 * (returns - value).pow(2).mean()
        loss = loss - 0.01 * dist.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return epochs


def main():
    env = Gathering(5)
    policy = SharedPolicy()
    team = Team(policy)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3, fused=True)
    steps = updates = 0
    start = time.perf_counter()
    for _ in range(EPISODES):
        observations, done = env.reset(), False
        seen, taken, rewards = [], [], []
        while not done:
            actions = team.act(observations)
            seen.append(np.stack(list(observations.values())))
            taken.append(list(actions.values()))
            observations, reward, done = env.step(actions)
            rewards.append(reward)
            steps += 1
        returns = np.repeat(discounted(rewards), TEAM)
        updates += learn(policy, optimizer, np.concatenate(seen), np.array(taken).reshape(-1), returns)
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
