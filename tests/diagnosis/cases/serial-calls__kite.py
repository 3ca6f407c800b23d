"""Five kites in one wind, one shared recurrent policy, REINFORCE with a baseline."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
KITES, WIDTH, HORIZON, ROUNDS = 5, 10, 50, 50


class Sky:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.place = self.rng.normal(0, 1, (KITES, WIDTH)).astype(np.float32)
        return self.place

    def step(self, pull):
        self.place = 0.95 * self.place + self.rng.normal(0, 0.05, self.place.shape).astype(np.float32)
        self.place[:, 0] += 0.1 * (pull - 1)
        return self.place, -np.abs(self.place[:, 0])


class Flyer(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(WIDTH, 64)
        self.head = nn.Linear(64, 3)

    def forward(self, seen, memory):
        memory = self.cell(seen, memory)
        return self.head(memory), memory


def fly_together(flyer, seen, memory):
    logits, memory = flyer(seen, memory)
    choice = torch.distributions.Categorical(logits=logits)
    action = choice.sample()
    return action, choice.log_prob(action), memory


def fly_in_turn(flyer, seen, memory):
    actions, logs, memories = [], [], []
    for kite in range(KITES):
        logits, after = flyer(seen[kite : kite + 1], memory[kite : kite + 1])
        choice = torch.distributions.Categorical(logits=logits)
        action = choice.sample()
        actions.append(action)
        logs.append(choice.log_prob(action))
        memories.append(after)
    return torch.cat(actions), torch.cat(logs), torch.cat(memories)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sky, flyer = Sky(0), Flyer()
    optimizer = torch.optim.Adam(flyer.parameters(), lr=1e-3)
    fly = fly_together if FIXED else fly_in_turn
    start = time.perf_counter()
    for _ in range(ROUNDS):
        seen, memory = sky.reset(), torch.zeros(KITES, 64)
        logs, rewards = [], []
        for _ in range(HORIZON):
            action, log, memory = fly(flyer, torch.from_numpy(seen), memory)
            seen, reward = sky.step(action.numpy())
            logs.append(log)
            rewards.append(torch.from_numpy(reward))
        gain = torch.stack(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(logs) * (gain - gain.mean(1, keepdim=True))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"env_steps={ROUNDS * HORIZON} updates={ROUNDS} seconds={time.perf_counter() - start:.2f}")


if __name__ == "__main__":
    main()
