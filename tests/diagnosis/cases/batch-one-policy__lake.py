"""Advantage actor-critic for a boat on a lake: two-layer networks, one update every 64 steps."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
BOATS = 8 if FIXED else 1
STEPS, EVERY = 28_000, 64


class Lake:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.normal(0.0, 1.0, 8).astype(np.float32)
        self.age = 0
        return self.state.copy()

    def step(self, action):
        self.state *= 0.97
        self.state[action] += 0.1
        self.age += 1
        return self.state.copy(), -abs(float(self.state[0])), self.age >= 200


class Captain(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.policy, self.value = nn.Linear(256, 4), nn.Linear(256, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.policy(hidden), self.value(hidden).squeeze(-1)


class Crew:
    def __init__(self):
        self.lakes = [Lake(seed) for seed in range(BOATS)]
        self.seen = np.stack([lake.reset() for lake in self.lakes])
        self.captain = Captain()
        self.adam = torch.optim.Adam(self.captain.parameters(), lr=3e-4)

    def choose(self):
        with torch.no_grad():
            logits, value = self.captain(torch.from_numpy(self.seen))
            return torch.distributions.Categorical(logits=logits).sample().numpy(), value.numpy()

    def sail(self):
        rows = []
        for _ in range(EVERY // BOATS):
            action, value = self.choose()
            answers = [lake.step(int(a)) for lake, a in zip(self.lakes, action, strict=True)]
            rows.append((self.seen, action, value, np.array([a[1] for a in answers], np.float32)))
            self.seen = np.stack([lake.reset() if a[2] else a[0] for lake, a in zip(self.lakes, answers, strict=True)])
        return [np.stack(column) for column in zip(*rows, strict=True)]

    def learn(self, seen, action, value, reward):
        gain = np.zeros_like(reward)
        running = value[-1]
        for t in reversed(range(len(reward))):
            running = gain[t] = reward[t] + 0.98 * running
        logits, guess = self.captain(torch.from_numpy(seen.reshape(-1, 8)))
        gain = torch.from_numpy(gain.reshape(-1))
        chosen = torch.distributions.Categorical(logits=logits).log_prob(torch.from_numpy(action.reshape(-1)))
        loss = -(chosen * (gain - guess.detach())).mean() + 0.5 * (gain - guess).pow(2).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    crew = Crew()
    start = time.perf_counter()
    updates = 0
    for _ in range(STEPS // EVERY):
        crew.learn(*crew.sail())
        updates += 1
    print(f"env_steps={updates * EVERY} updates={updates} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
