"""Double DQN from pixels: a forklift collects pallets, four stacked grey frames, convolutional Q-network."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

CELLS, CELL, STACK = 14, 3, 4
SIDE = CELLS * CELL
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
STEPS, WARMUP, UPDATE_EVERY, SYNC_EVERY = 1600, 240, 4, 60
BATCH, GAMMA, HORIZON = 72, 0.97, 120


class Yard:
    """Pallets on a walled grid, drawn as a small grey image."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.frame = np.zeros((SIDE, SIDE), np.uint8)

    def reset(self):
        walls = self.rng.random((CELLS, CELLS)) < 0.12
        walls[CELLS // 2, CELLS // 2] = False
        self.walls = walls.tolist()
        self.backdrop = np.kron(walls.astype(np.uint8) * 90, np.ones((CELL, CELL), np.uint8))
        free = np.argwhere(~walls)
        picks = self.rng.choice(len(free), 6, replace=False)
        self.pallets = {(r, c) for r, c in free[picks].tolist()}
        self.at, self.t = (CELLS // 2, CELLS // 2), 0
        return self.draw()

    def paint(self, cell, grey):
        r, c = cell[0] * CELL, cell[1] * CELL
        self.frame[r : r + CELL, c : c + CELL] = grey

    def draw(self):
        np.copyto(self.frame, self.backdrop)
        for cell in self.pallets:
            self.paint(cell, 170)
        self.paint(self.at, 255)
        return self.frame

    def step(self, action):
        r, c = self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]
        reward = -0.01
        if 0 <= r < CELLS and 0 <= c < CELLS and not self.walls[r][c]:
            self.at = (r, c)
        else:
            reward -= 0.05
        if self.at in self.pallets:
            self.pallets.remove(self.at)
            reward += 1.0
        self.t += 1
        done = not self.pallets or self.t >= HORIZON
        return self.draw(), reward, done


class Frames:
    """Single frames are stored once; stacks are gathered by index and never cross an episode start."""

    LAGS = np.arange(STACK - 1, -1, -1)

    def __init__(self, capacity):
        self.frames, self.size = np.zeros((capacity, SIDE, SIDE), np.uint8), 0
        self.ages, self.actions = np.zeros((2, capacity), np.int64)
        self.rewards, self.dones = np.zeros((2, capacity), np.float32)

    def push(self, frame, age):
        self.frames[self.size], self.ages[self.size] = frame, age
        self.size += 1

    def record(self, action, reward, done):
        last = self.size - 1
        self.actions[last], self.rewards[last], self.dones[last] = action, reward, done

    def stacks(self, index):
        back = np.minimum(self.LAGS, self.ages[index][:, None])
        return torch.from_numpy(self.frames[index[:, None] - back]).float().div_(255.0)

    def sample(self, rng, count):
        index = rng.integers(0, self.size - 1, count)
        columns = (torch.from_numpy(column[index]) for column in (self.actions, self.rewards, self.dones))
        return self.stacks(index), self.stacks(index + 1), *columns


def make_net():
    return nn.Sequential(
        nn.Conv2d(STACK, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Conv2d(32, 32, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, len(MOVES)),
    )


class Learner:
    def __init__(self):
        self.net, self.target = make_net(), make_net().requires_grad_(False)
        self.target.load_state_dict(self.net.state_dict())
        self.optim = torch.optim.Adam(self.net.parameters(), lr=3e-4)
        self.updates = 0

    @torch.inference_mode()
    def act(self, stack):
        return int(self.net(stack).argmax(1))

    def update(self, obs, following, actions, rewards, dones):
        with torch.no_grad():
            best = self.net(following).argmax(1, keepdim=True)
            target = rewards + GAMMA * (1 - dones) * self.target(following).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.net(obs).gather(1, actions[:, None]).squeeze(1), target)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.updates += 1
        if self.updates % SYNC_EVERY == 0:
            self.target.load_state_dict(self.net.state_dict())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rng, env, learner, frames = np.random.default_rng(8), Yard(8), Learner(), Frames(2 * STEPS)
    total = 0.0
    start = time.perf_counter()
    frames.push(env.reset(), 0)
    for t in range(STEPS):
        if rng.random() < max(0.05, 1.0 - t / STEPS):
            action = int(rng.integers(len(MOVES)))
        else:
            action = learner.act(frames.stacks(np.array([frames.size - 1])))
        frame, reward, done = env.step(action)
        total += reward
        frames.record(action, reward, done)
        if done:
            frame = env.reset()
        frames.push(frame, 0 if done else frames.ages[frames.size - 1] + 1)
        if t >= WARMUP and t % UPDATE_EVERY == 0:
            learner.update(*frames.sample(rng, BATCH))
    seconds = time.perf_counter() - start
    print(f"reward_per_step={total / STEPS:.4f}")
    print(f"env_steps={STEPS} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
