"""REINFORCE with a compiled policy for a queue of jobs."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Jobs:
    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)

    def reset(self):
        self.left = self.rng.uniform(0, 1, (self.n, 6)).astype(np.float32)
        self.late = np.zeros(self.n, np.float32)
        return self.left.copy()

    def step(self, pick):
        rows = np.arange(self.n)
        self.left[rows, pick] = np.maximum(self.left[rows, pick] - 0.3, 0)
        fresh = self.rng.random((self.n, 6)) < 0.05
        self.left = np.where(fresh, 1.0, self.left).astype(np.float32)
        return self.left.copy(), -self.left.mean(1)


class Scheduler(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.inp = nn.Linear(6, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(48)])
        self.out = nn.Linear(width, 6)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h).log_softmax(-1)


def main(iterations=45, n=32, horizon=24):
    torch.set_num_threads(1)
    torch.manual_seed(37)
    jobs, policy = Jobs(n, 37), Scheduler()
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
    forward = policy if FIXED else torch.compile(policy, backend="eager")
    start = time.time()
    for _ in range(iterations):
        s, rows = jobs.reset(), []
        for _ in range(horizon):
            x = torch.from_numpy(s)
            with torch.no_grad():
                pick = torch.multinomial(forward(x).exp(), 1)[:, 0]
            s, r = jobs.step(pick.numpy())
            rows.append((x, pick, torch.from_numpy(r)))
        gain = torch.stack([row[2] for row in rows]).flip(0).cumsum(0).flip(0)
        gain = (gain - gain.mean(1, keepdim=True)) / (gain.std() + 1e-6)
        logp = forward(torch.cat([row[0] for row in rows]))
        chosen = logp.gather(1, torch.cat([row[1] for row in rows])[:, None])[:, 0]
        loss = -(chosen * gain.flatten()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"env_steps={iterations * horizon * n} updates={iterations} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
