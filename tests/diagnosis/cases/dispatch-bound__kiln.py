"""Planning in a learned model of a kiln: candidates are rolled out through the model, the best first move is made."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
WIDTH, CANDIDATES, AHEAD, STEPS = 8, 32, 10, 360


class Kiln:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.heat = self.rng.normal(0, 1, WIDTH).astype(np.float32)
        return self.heat

    def step(self, action):
        self.heat = (0.9 * self.heat + 0.1 * np.tanh(np.roll(self.heat, 1)) + 0.1 * action).astype(np.float32)
        return self.heat, float(-np.square(self.heat).mean()), False


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(0.1 * torch.randn(WIDTH, WIDTH))
        self.push = nn.Parameter(0.1 * torch.randn(WIDTH))

    def forward(self, heat, action):
        return 0.9 * heat + torch.tanh(heat @ self.mix) + action[:, None] * self.push


def score(heat):
    if FIXED:
        return -heat.square().mean(1)
    total = torch.zeros(len(heat))
    for i in range(WIDTH):
        part = heat[:, i]
        part = torch.where(part > 0, part, -part)
        total = total - part * part / WIDTH
    return total


def plan(model, heat):
    actions = torch.randn(CANDIDATES, AHEAD)
    state = torch.from_numpy(heat).expand(CANDIDATES, WIDTH)
    total = torch.zeros(CANDIDATES)
    with torch.no_grad():
        for t in range(AHEAD):
            state = model(state, actions[:, t])
            total = total + score(state)
    return float(actions[total.argmax(), 0])


def fit(model, optimizer, rows):
    heat, action, after = (torch.from_numpy(np.array(c, np.float32)) for c in zip(*rows, strict=True))
    loss = (model(heat, action) - after).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    kiln, model = Kiln(0), Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    heat, rows = kiln.reset(), []
    start = time.perf_counter()
    for step in range(STEPS * 10):
        action = plan(model, heat)
        after, _, _ = kiln.step(action)
        rows.append((heat, action, after))
        heat = after
        if step % 10 == 9:
            fit(model, optimizer, rows[-64:])
    print(f"env_steps={STEPS * 10} updates={STEPS} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
