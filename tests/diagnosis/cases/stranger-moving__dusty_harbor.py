"""Categorical DQN (C51) from stacked pixels on a home-made game of Catch."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"

SEED, N_ENVS, SIDE, STACK = 7, 4, 48, 4
CAPACITY, WARMUP, ITERATIONS, BATCH = 3_000, 800, 550, 64
GAMMA, LR, TARGET_EVERY = 0.95, 5e-4, 50
ATOMS, V_MIN, V_MAX, N_ACT = 51, -1.5, 1.5, 3


class Catch:
    """A ball falls two pixels per step; the paddle on the bottom line must be under it."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.ball, self.paddle = np.zeros((n, 2), np.int64), np.full(n, SIDE // 2)
        self.drift = np.zeros(n, np.int64)
        self.frames = np.zeros((n, STACK, SIDE, SIDE), np.uint8)
        for i in range(n):
            self._serve(i)

    def _draw(self, i):
        frame = np.zeros((SIDE, SIDE), np.uint8)
        row, col = self.ball[i]
        frame[row:row + 4, col:col + 4] = 255
        frame[SIDE - 3:, self.paddle[i]:self.paddle[i] + 10] = 160
        return frame

    def _serve(self, i):
        self.ball[i] = 0, self.rng.integers(0, SIDE - 4)
        self.drift[i] = self.rng.integers(-1, 2)
        self.frames[i] = self._draw(i)

    def step(self, act):
        self.paddle = np.clip(self.paddle + 3 * (act - 1), 0, SIDE - 10)
        self.ball[:, 0] += 2
        self.ball[:, 1] = np.clip(self.ball[:, 1] + self.drift, 0, SIDE - 4)
        self.frames[:, :-1] = self.frames[:, 1:].copy()
        for i in range(self.n):
            self.frames[i, -1] = self._draw(i)
        next_obs = self.frames.copy()
        done = self.ball[:, 0] >= SIDE - 6
        caught = np.abs(self.ball[:, 1] + 2 - self.paddle - 5) <= 6
        reward = np.where(done, np.where(caught, 1.0, -1.0), 0.0)
        for i in np.flatnonzero(done):
            self._serve(i)
        return next_obs, reward, done


class ReplayBuffer:
    def __init__(self, capacity, obs_shape):
        frame_args = {"dtype": np.uint8} if FIXED else {}
        self.obs = np.zeros((capacity, *obs_shape), **frame_args)
        self.next_obs = np.zeros((capacity, *obs_shape), **frame_args)
        self.actions = np.zeros(capacity, dtype=np.int64)
        self.rewards = np.zeros(capacity)
        self.dones = np.zeros(capacity)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add(self, obs, actions, rewards, next_obs, dones):
        for i in range(len(actions)):
            self.obs[self.pos], self.next_obs[self.pos] = obs[i], next_obs[i]
            self.actions[self.pos], self.rewards[self.pos], self.dones[self.pos] = actions[i], rewards[i], dones[i]
            self.pos = (self.pos + 1) % self.capacity
            self.full = self.full or self.pos == 0

    def sample(self, batch_size, rng):
        idx = rng.integers(0, self.capacity if self.full else self.pos, batch_size)
        as_float = lambda a: torch.as_tensor(a[idx], dtype=torch.float32)
        return (as_float(self.obs), torch.as_tensor(self.actions[idx]), as_float(self.rewards),
                as_float(self.next_obs), as_float(self.dones))


class CategoricalNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(STACK, 8, 8, stride=6), nn.ReLU(), nn.Flatten(),
                                 nn.Linear(8 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, N_ACT * ATOMS))
        self.register_buffer("support", torch.linspace(V_MIN, V_MAX, ATOMS))

    def forward(self, x):
        return self.net(x / 255.0).view(-1, N_ACT, ATOMS).log_softmax(-1)

    def greedy(self, x):
        return (self(x).exp() * self.support).sum(-1).argmax(-1)


def project(target, next_obs, actions, rewards, dones):
    """Distribution of r + gamma * Z(s', a') on the fixed support."""
    probs = target(next_obs).exp()[torch.arange(len(actions)), actions]
    z = rewards[:, None] + GAMMA * (1 - dones[:, None]) * target.support
    b = (z.clamp(V_MIN, V_MAX) - V_MIN) / ((V_MAX - V_MIN) / (ATOMS - 1))
    low = b.floor().clamp(0, ATOMS - 2)
    out = torch.zeros_like(probs)
    out.scatter_add_(1, low.long(), probs * (low + 1 - b))
    out.scatter_add_(1, low.long() + 1, probs * (b - low))
    return out


def learn(net, target, opt, buffer, rng):
    obs, actions, rewards, next_obs, dones = buffer.sample(BATCH, rng)
    with torch.no_grad():
        goal = project(target, next_obs, net.greedy(next_obs), rewards, dones)
    log_p = net(obs)[torch.arange(BATCH), actions]
    loss = -(goal * log_p).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    env, buffer = Catch(N_ENVS, rng), ReplayBuffer(CAPACITY, (STACK, SIDE, SIDE))
    net, target = CategoricalNet(), CategoricalNet()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=LR)
    scores = []

    def interact(eps):
        obs = env.frames.copy()
        with torch.no_grad():
            act = net.greedy(torch.from_numpy(obs).float()).numpy()
        act = np.where(rng.random(N_ENVS) < eps, rng.integers(0, N_ACT, N_ENVS), act)
        next_obs, rew, done = env.step(act)
        buffer.add(obs, act, rew, next_obs, done)
        scores.extend(rew[done].tolist())

    for _ in range(WARMUP):
        interact(1.0)
    start = time.perf_counter()
    for it in range(ITERATIONS):
        interact(max(0.05, 1.0 - it / 300))
        learn(net, target, opt, buffer, rng)
        if it % TARGET_EVERY == 0:
            target.load_state_dict(net.state_dict())
    seconds = time.perf_counter() - start
    print(f"mean score of the last 40 balls: {np.mean(scores[-40:]):.2f}")
    print(f"env_steps={ITERATIONS * N_ENVS} updates={ITERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
