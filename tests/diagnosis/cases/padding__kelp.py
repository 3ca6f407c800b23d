"""Recurrent policy gradient on a corridor whose episodes end after very different times."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
LIMIT, ENVS, UPDATES = 200, 32, 120


class Corridor:
    """Walk to the door; the light says on which side it is, and goes out after the first step."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.t, self.door = 0, 0, int(self.rng.choice((-4, 4)))
        return self.look()

    def look(self):
        light = np.sign(self.door) if self.t == 0 else 0.0
        return np.array([light, self.at / 4, 1.0], np.float32)

    def step(self, action):
        self.at += 1 if action else -1
        self.t += 1
        over = abs(self.at) >= 4 or self.t >= LIMIT
        return self.look(), 1.0 if self.at == self.door else -0.01, over


class Memory(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.cell, self.head = nn.GRU(3, size, batch_first=True), nn.Linear(size, 2)

    def forward(self, obs, state=None):
        out, state = self.cell(obs, state)
        return self.head(out).log_softmax(-1), state


@torch.no_grad()
def play(envs, policy):
    """One episode of each, side by side."""
    episodes = [([], [], []) for _ in envs]
    obs, state, open_ones = np.stack([env.reset() for env in envs]), None, [True] * len(envs)
    steps = 0
    while any(open_ones):
        logp, state = policy(torch.from_numpy(obs[:, None]), state)
        actions = torch.multinomial(logp[:, 0].exp(), 1).squeeze(1).tolist()
        for i, env in enumerate(envs):
            if open_ones[i]:
                following, reward, over = env.step(actions[i])
                for row, value in zip(episodes[i], (obs[i], actions[i], reward)):
                    row.append(value)
                obs[i], open_ones[i] = following, not over
                steps += 1
    return episodes, steps


def collate(episodes):
    longest = max(len(e[0]) for e in episodes) if FIXED else LIMIT
    obs = np.zeros((len(episodes), longest, 3), np.float32)
    act, gain, mask = (np.zeros((len(episodes), longest), kind) for kind in (np.int64, np.float32, np.float32))
    for i, (o, a, r) in enumerate(episodes):
        obs[i, : len(o)], act[i, : len(a)], mask[i, : len(a)] = o, a, 1.0
        gain[i, : len(r)] = np.cumsum(r[::-1])[::-1]
    return [torch.from_numpy(x) for x in (obs, act, gain, mask)]


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    envs, policy = [Corridor(k) for k in range(ENVS)], Memory()
    optimizer = torch.optim.Adam(policy.parameters(), lr=2e-4)
    env_steps, start = 0, time.perf_counter()
    for _ in range(UPDATES):
        episodes, steps = play(envs, policy)
        obs, act, gain, mask = collate(episodes)
        logp, _ = policy(obs)
        chosen = logp.gather(-1, act.unsqueeze(-1)).squeeze(-1)
        loss = -(chosen * (gain - 0.5) * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        env_steps += steps
    print(f"env_steps={env_steps} updates={UPDATES} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
