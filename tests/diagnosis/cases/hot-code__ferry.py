"""PPO-style agent that crosses a tiled river map, looking at an egocentric window of tile planes."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

WATER, BANK, ROCK, BUOY, PIER = range(5)
KINDS = 5
MAP = 32
REACH = 4
SIDE = 2 * REACH + 1
STEPS = {0: (0, 1), 1: (0, -1), 2: (1, 0), 3: (-1, 0)}


class RiverMap:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.tiles = np.full((MAP, MAP), WATER, np.int64)
        self.tiles[self.rng.random((MAP, MAP)) < 0.1] = ROCK
        self.tiles[self.rng.random((MAP, MAP)) < 0.05] = BUOY
        self.tiles[0, :] = self.tiles[-1, :] = BANK
        self.row, self.col = MAP // 2, 1
        self.tiles[self.row, self.col] = WATER
        self.tiles[self.rng.integers(1, MAP - 1), MAP - 2] = PIER
        self.t = 0
        return self.tiles, self.row, self.col

    def step(self, action):
        dr, dc = STEPS[action]
        r, c = self.row + dr, self.col + dc
        self.t, reward = self.t + 1, -0.01
        if 0 <= r < MAP and 0 <= c < MAP and self.tiles[r, c] not in (BANK, ROCK):
            reward += 0.05 * (c - self.col)
            self.row, self.col = r, c
            if self.tiles[r, c] == BUOY:
                reward += 0.3
                self.tiles[r, c] = WATER
        landed = self.tiles[self.row, self.col] == PIER
        return (self.tiles, self.row, self.col), reward + 2.0 * landed, bool(landed) or self.t >= 150


class WindowEncoder:
    """Planes (kind, row, col) around the boat; beyond the map counts as bank."""

    size = KINDS * SIDE * SIDE + 2

    def encode(self, tiles, row, col):
        if FIXED:
            padded = np.full((SIDE, SIDE), BANK)
            r0, r1, c0, c1 = max(0, row - REACH), row + REACH + 1, max(0, col - REACH), col + REACH + 1
            seen = tiles[r0:r1, c0:c1]
            top, left = r0 - row + REACH, c0 - col + REACH
            padded[top:top + seen.shape[0], left:left + seen.shape[1]] = seen
            planes = padded[None] == np.arange(KINDS)[:, None, None]
            return np.append(planes.reshape(-1), [row / MAP, col / MAP]).astype(np.float32)
        features = []
        for kind in range(KINDS):
            for r in range(row - REACH, row + REACH + 1):
                for c in range(col - REACH, col + REACH + 1):
                    inside = 0 <= r < MAP and 0 <= c < MAP
                    tile = tiles[r, c] if inside else BANK
                    features.append(1.0 if tile == kind else 0.0)
        return np.array(features + [row / MAP, col / MAP], dtype=np.float32)


class Trainer:
    def __init__(self, n_envs=8, horizon=32):
        self.n, self.horizon = n_envs, horizon
        self.envs = [RiverMap(100 + i) for i in range(n_envs)]
        self.encoder = WindowEncoder()
        self.net = nn.Sequential(nn.Linear(self.encoder.size, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
                                 nn.Linear(128, 5))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-4, fused=True)
        self.obs = np.stack([self.encoder.encode(*env.reset()) for env in self.envs])
        self.updates = self.steps = 0

    @torch.no_grad()
    def rollout(self):
        obs = np.zeros((self.horizon, self.n, self.encoder.size), np.float32)
        act = np.zeros((self.horizon, self.n), np.int64)
        rew, val = np.zeros((self.horizon, self.n), np.float32), np.zeros((self.horizon + 1, self.n), np.float32)
        end = np.zeros((self.horizon, self.n), np.float32)
        for t in range(self.horizon):
            out = self.net(torch.from_numpy(self.obs))
            obs[t], val[t] = self.obs, out[:, 4].numpy()
            act[t] = torch.multinomial(out[:, :4].softmax(1), 1).squeeze(1).numpy()
            for i, env in enumerate(self.envs):
                view, rew[t, i], done = env.step(int(act[t, i]))
                end[t, i] = done
                self.obs[i] = self.encoder.encode(*(env.reset() if done else view))
            self.steps += self.n
        val[-1] = self.net(torch.from_numpy(self.obs))[:, 4].numpy()
        ret, g = np.zeros_like(rew), val[-1]
        for t in range(self.horizon - 1, -1, -1):
            g = rew[t] + 0.97 * (1 - end[t]) * g
            ret[t] = g
        return [torch.from_numpy(x.reshape(self.horizon * self.n, *x.shape[2:])) for x in (obs, act, ret, ret - val[:-1])]

    def improve(self, obs, act, ret, adv, epochs=10):
        with torch.no_grad():
            old = self.net(obs)[:, :4].log_softmax(1).gather(1, act[:, None]).squeeze(1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        for _ in range(epochs):
            out = self.net(obs)
            logp = out[:, :4].log_softmax(1).gather(1, act[:, None]).squeeze(1)
            ratio = (logp - old).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean() + 0.5 * (out[:, 4] - ret).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.updates += 1

    def fit(self, total):
        while self.steps < total:
            self.improve(*self.rollout())


if __name__ == "__main__":
    torch.manual_seed(4)
    trainer = Trainer()
    start = time.perf_counter()
    trainer.fit(90 * 256)
    print(f"env_steps={trainer.steps} updates={trainer.updates} seconds={time.perf_counter() - start:.3f}")
