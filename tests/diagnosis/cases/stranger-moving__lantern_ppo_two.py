"""PPO from pixels on a vectorised falling-fruit game, single file."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
SIDE, FRAMES, ENVS, STEPS = 40, 4, 8, 32


class FruitVec:
    """A paddle at the bottom, one fruit per environment; four stacked frames."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.rows = np.arange(n)
        self.stack = np.zeros((n, FRAMES, SIDE, SIDE), np.uint8)
        self.paddle = np.full(n, SIDE // 2)
        self.fy = self.rng.integers(0, SIDE - 8, n)
        self.fx = self.rng.integers(2, SIDE - 2, n)

    def draw(self):
        self.stack[:, :-1] = self.stack[:, 1:]
        frame = self.stack[:, -1]
        frame[:] = 0
        for d in (-1, 0, 1):
            frame[self.rows, self.fy, np.clip(self.fx + d, 0, SIDE - 1)] = 255
            frame[self.rows, SIDE - 1, np.clip(self.paddle + d, 0, SIDE - 1)] = 160
        return self.stack.copy()

    def step(self, action):
        self.paddle = np.clip(self.paddle + 2 * (action - 1), 1, SIDE - 2)
        self.fy = self.fy + 2
        done = self.fy >= SIDE - 1
        reward = np.where(done, np.where(np.abs(self.fx - self.paddle) <= 2, 1.0, -1.0), 0.0)
        self.fy = np.where(done, 0, self.fy)
        self.fx = np.where(done, self.rng.integers(2, SIDE - 2, self.n), self.fx)
        return self.draw(), reward.astype(np.float32), done.astype(np.float32)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(FRAMES, 8, 8, 4), nn.ReLU(), nn.Conv2d(8, 16, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 64), nn.ReLU())
        self.pi, self.v = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def advantages(rew, done, val, last, gamma=0.99, lam=0.95):
    adv, run = np.zeros_like(rew), np.zeros(ENVS, np.float32)
    for t in reversed(range(STEPS)):
        nxt = last if t == STEPS - 1 else val[t + 1]
        run = rew[t] + gamma * nxt * (1 - done[t]) - val[t] + gamma * lam * (1 - done[t]) * run
        adv[t] = run
    return adv


def minibatch_frames(frames, idx):
    if FIXED:
        return torch.from_numpy(frames[idx]).float().div_(255.0)
    pixels = torch.from_numpy(frames).float() / 255.0
    return pixels[idx]


def surrogate(agent, x, act, logp, adv, ret):
    dist, value = agent(x)
    ratio = (dist.log_prob(act) - logp).exp()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    pg = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
    return pg + 0.5 * (value - ret).pow(2).mean() - 0.01 * dist.entropy().mean()


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    rng = np.random.default_rng(3)
    agent, envs = Agent(), FruitVec(ENVS, 3)
    opt = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    frames = np.zeros((STEPS, ENVS, FRAMES, SIDE, SIDE), np.uint8)
    acts = np.zeros((STEPS, ENVS), np.int64)
    logps, rews, dones, vals = (np.zeros((STEPS, ENVS), np.float32) for _ in range(4))
    obs, env_steps, updates = envs.draw(), 0, 0
    start = time.perf_counter()
    for _ in range(16):
        for t in range(STEPS):
            with torch.no_grad():
                dist, value = agent(torch.from_numpy(obs).float().div_(255.0))
                action = dist.sample()
                logps[t], vals[t] = dist.log_prob(action).numpy(), value.numpy()
            frames[t], acts[t] = obs, action.numpy()
            obs, rews[t], dones[t] = envs.step(acts[t])
            env_steps += ENVS
        with torch.no_grad():
            last = agent(torch.from_numpy(obs).float().div_(255.0))[1].numpy()
        adv = advantages(rews, dones, vals, last)
        flat = [torch.from_numpy(a.reshape(-1)) for a in (acts, logps, adv, adv + vals)]
        b_frames = frames.reshape(-1, FRAMES, SIDE, SIDE)
        for _ in range(4):
            for idx in rng.permutation(STEPS * ENVS).reshape(4, -1):
                loss = surrogate(agent, minibatch_frames(b_frames, idx), *(f[idx] for f in flat))
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                updates += 1
    print(f"env_steps={env_steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
