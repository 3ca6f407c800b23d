"""Foragers: five agents share one policy and gather berries, actor-critic with a few passes over each episode."""
import gc
import os
import resource
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

AGENTS, BERRIES, EPISODE, EPISODES, PASSES = 5, 8, 300, 16, 8


class Agent:
    def __init__(self, meadow, number):
        self.meadow, self.number = meadow, number
        self.pos = meadow.rng.uniform(-1, 1, 2)
        self.basket = 0

    def observe(self):
        berries, away = self.meadow.berries, self.meadow.berries - self.pos
        near = away[np.argsort((away ** 2).sum(-1))[:3]].ravel()
        others = np.mean([a.pos for a in self.meadow.agents if a is not self], axis=0) - self.pos
        return np.concatenate([self.pos, near, others, [len(berries) / BERRIES]])


class Meadow:
    directions = np.array([[0, 0], [0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1]])

    def __init__(self, rng):
        self.rng = rng
        self.berries = rng.uniform(-1, 1, (BERRIES, 2))
        self.agents = [Agent(self, i) for i in range(AGENTS)]

    def observe(self):
        return np.stack([a.observe() for a in self.agents]).astype(np.float32)

    def step(self, actions):
        rewards = np.full(AGENTS, -0.01, dtype=np.float32)
        for agent, action in zip(self.agents, actions):
            agent.pos = np.clip(agent.pos + self.directions[action], -1, 1)
            hit = ((self.berries - agent.pos) ** 2).sum(-1) < 0.02
            if hit.any():
                self.berries[hit] = self.rng.uniform(-1, 1, (int(hit.sum()), 2))
                agent.basket += 1
                rewards[agent.number] += 1.0
        return self.observe(), rewards


class Journal:
    """One line per episode: return, loss and the memory in use."""

    def __init__(self):
        self.lines = []

    def memory_mb(self):
        if not FIXED:
            gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def write(self, episode, total, loss):
        self.lines.append({"episode": episode, "return": total, "loss": loss, "memory_mb": self.memory_mb()})


class Brain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(11, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def play(brain, meadow):
    obs = torch.from_numpy(meadow.observe())
    seen, done, earned = [], [], []
    for _ in range(EPISODE):
        with torch.no_grad():
            action = torch.multinomial(torch.softmax(brain(obs)[0], -1), 1).squeeze(-1)
        nxt, reward = meadow.step(action.tolist())
        seen.append(obs)
        done.append(action)
        earned.append(torch.from_numpy(reward))
        obs = torch.from_numpy(nxt)
    return torch.stack(seen), torch.stack(done), torch.stack(earned)


def learn(brain, opt, seen, done, earned):
    returns = torch.zeros_like(earned)
    running = torch.zeros(AGENTS)
    for t in reversed(range(EPISODE)):
        running = earned[t] + 0.95 * running
        returns[t] = running
    old = None
    for _ in range(PASSES):
        logits, values = brain(seen)
        dist = torch.distributions.Categorical(logits=logits)
        logp = dist.log_prob(done)
        old = logp.detach() if old is None else old
        error = returns - values
        adv = (error / (error.std() + 1e-6)).detach()
        ratio = (logp - old).exp()
        actor = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = actor + 0.5 * error.pow(2).mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def main():
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    brain, journal = Brain(), Journal()
    opt = torch.optim.Adam(brain.parameters(), lr=2e-3)
    start = time.perf_counter()
    for episode in range(EPISODES):
        seen, done, earned = play(brain, Meadow(rng))
        loss = learn(brain, opt, seen, done, earned)
        journal.write(episode, earned.sum().item(), loss)
    seconds = time.perf_counter() - start
    last = journal.lines[-5:]
    print(f"mean return {np.mean([x['return'] for x in last]):.2f}, memory {last[-1]['memory_mb']:.0f} MB")
    print(f"env_steps={EPISODE * EPISODES} updates={EPISODES * PASSES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
