"""REINFORCE with a baseline in small generated caves: walk from the entrance to the exit."""

import functools
import os
import random
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
N = 31


def carve(level):
    """A perfect maze on an N x N board, the walking distance of every cell to the exit, and the free cells."""
    rng = random.Random(level)
    grid = [[1] * N for _ in range(N)]
    stack = [(1, 1)]
    grid[1][1] = 0
    while stack:
        y, x = stack[-1]
        ways = [(dy, dx) for dy, dx in ((-2, 0), (2, 0), (0, -2), (0, 2)) if 0 < y + dy < N and 0 < x + dx < N]
        ways = [(dy, dx) for dy, dx in ways if grid[y + dy][x + dx]]
        if not ways:
            stack.pop()
            continue
        dy, dx = rng.choice(ways)
        grid[y + dy // 2][x + dx // 2] = 0
        grid[y + dy][x + dx] = 0
        stack.append((y + dy, x + dx))
    goal = (N - 2, N - 2)
    dist, frontier = {goal: 0}, [goal]
    while frontier:
        y, x = frontier.pop(0)
        for dy, dx in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            cell = (y + dy, x + dx)
            if not grid[cell[0]][cell[1]] and cell not in dist:
                dist[cell] = dist[y, x] + 1
                frontier.append(cell)
    return np.array(grid, dtype=np.int8), dist, sorted(dist)


if FIXED:
    carve = functools.lru_cache(maxsize=None)(carve)


class CaveEnv(gym.Env):
    def __init__(self, levels=30, horizon=12):
        self.levels, self.horizon = levels, horizon
        self.observation_space = gym.spaces.Box(-1, 1, (27,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.grid, self.dist, cells = carve(int(self.np_random.integers(self.levels)))
        self.y, self.x = cells[int(self.np_random.integers(len(cells)))]
        self.t = 0
        return self._view(), {}

    def _view(self):
        padded = self.grid[max(self.y - 2, 0) : self.y + 3, max(self.x - 2, 0) : self.x + 3]
        window = np.ones((5, 5), np.float32)
        window[: padded.shape[0], : padded.shape[1]] = padded
        return np.append(window.ravel(), [self.y / N, self.x / N]).astype(np.float32)

    def step(self, action):
        dy, dx = ((-1, 0), (1, 0), (0, -1), (0, 1))[int(action)]
        before = self.dist[self.y, self.x]
        if not self.grid[self.y + dy, self.x + dx]:
            self.y, self.x = self.y + dy, self.x + dx
        self.t += 1
        left = self.dist[self.y, self.x]
        return self._view(), float(before - left) - 0.05, left == 0, self.t >= self.horizon, {}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(27, 64), nn.Tanh())
        self.logits = nn.Linear(64, 4)
        self.value = nn.Linear(64, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.logits(h), self.value(h)[..., 0]


def play(env, policy, generator):
    obs, _ = env.reset()
    rows, over = [], False
    while not over:
        with torch.no_grad():
            logits, _ = policy(torch.from_numpy(obs))
        action = int(torch.multinomial(logits.softmax(-1), 1, generator=generator))
        nxt, reward, terminated, truncated, _ = env.step(action)
        rows.append((obs, action, reward))
        obs, over = nxt, terminated or truncated
    return rows


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    generator = torch.Generator().manual_seed(3)
    began = time.time()
    env = CaveEnv()
    env.reset(seed=3)
    policy = Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)
    steps = updates = 0
    for _ in range(180):
        episodes = [play(env, policy, generator) for _ in range(16)]
        returns = []
        for rows in episodes:
            g, back = 0.0, []
            for _, _, reward in reversed(rows):
                g = reward + 0.97 * g
                back.append(g)
            returns += reversed(back)
            steps += len(rows)
        obs = torch.from_numpy(np.stack([r[0] for rows in episodes for r in rows]))
        act = torch.tensor([r[1] for rows in episodes for r in rows])
        ret = torch.tensor(returns)
        logits, value = policy(obs)
        logp = logits.log_softmax(-1).gather(1, act[:, None])[:, 0]
        loss = -(logp * (ret - value.detach())).mean() + 0.5 * (ret - value).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - began:.2f}")


if __name__ == "__main__":
    main()
