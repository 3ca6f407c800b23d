"""Double DQN from pixels: catch the fruit, leave the stones."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from gymnasium import spaces

FIXED = os.environ.get("FIXED") == "1"
GRID, SIDE = 14, 28


class Orchard(gym.Env):
    """A basket on the bottom row; one thing falls at a time, slower or faster."""

    def __init__(self, drops=6):
        self.drops = drops
        self.observation_space = spaces.Box(0, 255, shape=(1, SIDE, SIDE), dtype=np.uint8)
        self.action_space = spaces.Discrete(3)

    def _next_thing(self):
        self.row = 0
        self.col = int(self.np_random.integers(1, GRID - 1))
        self.fall = int(self.np_random.integers(1, 3))
        self.stone = bool(self.np_random.random() < 0.3)

    def _picture(self):
        picture = np.zeros((1, SIDE, SIDE), dtype=np.uint8)
        r, c, b = 2 * self.row, 2 * self.col, 2 * self.basket
        picture[0, r:r + 2, c:c + 2] = 90 if self.stone else 255
        picture[0, SIDE - 2:, max(b - 2, 0):b + 4] = 180
        return picture

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.basket, self.left = GRID // 2, self.drops
        self._next_thing()
        return self._picture(), {}

    def step(self, action):
        self.basket = min(max(self.basket + int(action) - 1, 1), GRID - 2)
        self.row += self.fall
        reward = 0.0
        if self.row >= GRID - 1:
            if abs(self.col - self.basket) <= 1:
                reward = -1.0 if self.stone else 1.0
            self.left -= 1
            self._next_thing()
        return self._picture(), reward, self.left == 0, False, {}


class FrameMemory:
    """The latest transitions of all environments, oldest first."""

    def __init__(self, capacity, shape, rng):
        self.capacity = capacity
        self.rng = rng
        self.frames = np.zeros((capacity, *shape), dtype=np.uint8)
        self.next_frames = np.zeros((capacity, *shape), dtype=np.uint8)
        self.small = np.zeros((capacity, 3), dtype=np.float32)  # action, reward, terminal
        self.size = 0
        self.oldest = 0

    def add(self, frames, actions, rewards, next_frames, terminals):
        n = len(frames)
        if FIXED:
            rows = (self.oldest + np.arange(n)) % self.capacity
            self.oldest = (self.oldest + n) % self.capacity
        else:
            rows = np.arange(self.capacity - n, self.capacity)
            for part in (self.frames, self.next_frames, self.small):
                part[:-n] = part[n:]
        self.frames[rows] = frames
        self.next_frames[rows] = next_frames
        self.small[rows] = np.stack([actions, rewards, terminals], axis=1)
        self.size = min(self.size + n, self.capacity)

    def sample(self, count):
        rows = self.rng.integers(self.capacity - self.size, self.capacity, size=count)
        rows = (rows + self.oldest) % self.capacity
        small = torch.from_numpy(self.small[rows])
        pictures = (torch.from_numpy(x[rows]) for x in (self.frames, self.next_frames))
        return *pictures, small[:, 0].long(), small[:, 1], small[:, 2]


class QNet(nn.Module):
    def __init__(self, actions):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, actions),
        )

    def forward(self, pictures):
        return self.net(pictures.float() / 255.0)


def main(num_envs=4, total=600, warmup=50, batch=32, gamma=0.95, capacity=14_000):
    torch.set_num_threads(1)
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    envs = gym.vector.SyncVectorEnv([Orchard] * num_envs, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)
    net, target = QNet(3), QNet(3)
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    memory = FrameMemory(capacity, envs.single_observation_space.shape, rng)
    obs, _ = envs.reset(seed=6)
    updates, score = 0, 0.0
    start = time.perf_counter()
    for step in range(total):
        epsilon = max(0.05, 1.0 - step / 400)
        with torch.no_grad():
            action = net(torch.from_numpy(obs)).argmax(1).numpy()
        action = np.where(rng.random(num_envs) < epsilon, rng.integers(0, 3, size=num_envs), action)
        nxt, reward, term, trunc, _ = envs.step(action)
        memory.add(obs, action, reward, nxt, term)
        obs = nxt
        score += float(reward.sum())
        if step < warmup:
            continue
        o, o2, a, r, d = memory.sample(batch)
        with torch.no_grad():
            best = net(o2).argmax(1, keepdim=True)
            goal = r + gamma * (1.0 - d) * target(o2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(net(o).gather(1, a[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        if updates % 100 == 0:
            target.load_state_dict(net.state_dict())
            print(f"step {step} score {score:.0f} loss {loss.item():.4f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={total * num_envs} updates={updates} seconds={seconds:.3f}")


main()
