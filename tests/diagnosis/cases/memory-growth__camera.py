"""SARSA(0) on camera pictures of a sorting belt; every decision is logged with its picture for later study."""

import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
HEIGHT, WIDTH = 208, 280


class BeltEnv(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self.picture = np.zeros((HEIGHT, WIDTH, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.item = int(self.np_random.integers(8, WIDTH - 8))
        self.arm, self.depth = WIDTH // 2, 8
        return self._draw(), {}

    def _draw(self):
        self.picture[:] = 30
        self.picture[self.depth - 8 : self.depth + 8, self.item - 8 : self.item + 8, 0] = 255
        self.picture[-16:, self.arm - 16 : self.arm + 16, 1] = 255
        return self.picture

    def step(self, action):
        self.arm = int(np.clip(self.arm + 12 * (int(action) - 1), 16, WIDTH - 16))
        self.depth += 8
        end = self.depth >= HEIGHT - 24
        reward = 1.0 - abs(self.arm - self.item) / WIDTH if end else 0.0
        return self._draw(), reward, end, False, {}


class FlightLog:
    def __init__(self):
        self.entries = deque(maxlen=100) if FIXED else []

    def write(self, picture, q, action, reward):
        self.entries.append({"picture": picture.copy(), "q": q, "action": action, "reward": reward})


class Eyes(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * 26 * 35, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.net(x.flatten(-3))


def shrink(picture):
    return torch.from_numpy(picture[4::8, 4::8, :2].astype(np.float32) / 255)


def main(steps=12_000):
    torch.set_num_threads(1)
    torch.manual_seed(12)
    rng = np.random.default_rng(12)
    start = time.time()
    env, log, eyes = BeltEnv(), FlightLog(), Eyes()
    optimizer = torch.optim.SGD(eyes.parameters(), lr=1e-2)

    def decide(x):
        with torch.no_grad():
            q = eyes(x).numpy()
        return q, int(rng.integers(3)) if rng.random() < 0.2 else int(q.argmax())

    picture, _ = env.reset(seed=12)
    x = shrink(picture)
    q, action = decide(x)
    pending, updates = [], 0
    for _ in range(steps):
        log_q, log_action = q, action
        picture, reward, end, _, _ = env.step(action)
        log.write(picture, log_q, log_action, reward)
        if end:
            picture, _ = env.reset()
        nxt = shrink(picture)
        q, nxt_action = decide(nxt)
        pending.append((x, action, reward + (0.0 if end else 0.97 * float(q[nxt_action]))))
        x, action = nxt, nxt_action
        if len(pending) == 8:
            chosen = eyes(torch.stack([p[0] for p in pending])).gather(1, torch.tensor([[p[1]] for p in pending]))[:, 0]
            loss = (chosen - torch.tensor([p[2] for p in pending])).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pending.clear()
            updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
