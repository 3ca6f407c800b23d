"""DQN from pixels on a catching game; recent episodes are kept on disk for later offline use."""
import collections
import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED, SIDE, BALLS = 13, 32, 3
EPISODES, CAPACITY, WARMUP, UPDATE_EVERY, BATCH = 60, 50_000, 200, 5, 32
GAMMA, SYNC_EVERY, KEEP_FILES = 0.97, 100, 4


class Catch:
    """A ball falls, a paddle at the bottom moves; three balls make an episode."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.paddle, self.left = SIDE // 2, BALLS
        self.drop()
        return self.draw()

    def drop(self):
        self.x, self.y = int(self.rng.integers(2, SIDE - 2)), 0

    def draw(self):
        frame = np.zeros((SIDE, SIDE), np.uint8)
        frame[self.y:self.y + 2, self.x - 1:self.x + 1] = 255
        frame[SIDE - 1, self.paddle - 2:self.paddle + 3] = 160
        return frame

    def step(self, action):
        self.paddle = min(max(self.paddle + action - 1, 2), SIDE - 3)
        self.y += 1
        reward = 0.0
        if self.y == SIDE - 2:
            reward = 1.0 if abs(self.x - self.paddle) <= 2 else -1.0
            self.left -= 1
            self.drop()
        return self.draw(), reward, self.left == 0


class FrameStore:
    """One long tape of frames; the successor of row i is row i + 1."""

    def __init__(self, capacity):
        self.frames = torch.zeros(capacity, SIDE, SIDE, dtype=torch.uint8)
        self.actions = torch.zeros(capacity, dtype=torch.int64)
        self.rewards = torch.zeros(capacity)
        self.dones = torch.zeros(capacity)
        self.size = 0

    def add(self, frame, action, reward, done):
        i = self.size
        self.frames[i] = torch.from_numpy(frame)
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, float(done)
        self.size += 1

    def sample(self, n):
        i = torch.randint(self.size - 1, (n,))
        now, then = (self.frames[j].unsqueeze(1).float() / 255 for j in (i, i + 1))
        return now, self.actions[i], self.rewards[i], then, self.dones[i]

    def rows(self, first, last):
        part = {"frames": self.frames[first:last], "actions": self.actions[first:last],
                "rewards": self.rewards[first:last]}
        if FIXED:
            part = {key: value.clone() for key, value in part.items()}
        return part


class Recorder:
    def __init__(self, folder):
        self.folder, self.paths, self.written = folder, collections.deque(), 0

    def write(self, part):
        path = os.path.join(self.folder, f"episode_{self.written:05d}.pt")
        torch.save(part, path)
        self.written += 1
        self.paths.append(path)
        if len(self.paths) > KEEP_FILES:
            os.remove(self.paths.popleft())


class DQN:
    def __init__(self):
        self.q = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=3), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3))
        self.target = copy.deepcopy(self.q)
        self.opt = torch.optim.Adam(self.q.parameters(), 5e-4)
        self.rng = np.random.default_rng(SEED)
        self.updates = 0

    @torch.no_grad()
    def act(self, frame, eps):
        if self.rng.random() < eps:
            return int(self.rng.integers(3))
        return int(self.q(torch.from_numpy(frame).float().div(255)[None, None]).argmax())

    def update(self, batch):
        now, action, reward, then, done = batch
        with torch.no_grad():
            backup = reward + GAMMA * (1 - done) * self.target(then).max(1).values
        taken = self.q(now).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(taken, backup)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % SYNC_EVERY == 0:
            self.target.load_state_dict(self.q.state_dict())


def play_episode(env, agent, store, recorder):
    frame, done, total, first = env.reset(), False, 0.0, store.size
    while not done:
        action = agent.act(frame, eps=max(0.05, 1 - store.size / 3000))
        next_frame, reward, done = env.step(action)
        store.add(frame, action, reward, done)
        frame, total = next_frame, total + reward
        if store.size > WARMUP and store.size % UPDATE_EVERY == 0:
            agent.update(store.sample(BATCH))
    recorder.write(store.rows(first, store.size))
    return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    env, agent, store = Catch(SEED), DQN(), FrameStore(CAPACITY)
    with tempfile.TemporaryDirectory() as folder:
        recorder, start = Recorder(folder), time.perf_counter()
        for episode in range(1, EPISODES + 1):
            score = play_episode(env, agent, store, recorder)
            if episode % 10 == 0:
                print(f"episode {episode} score {score:+.0f}")
        seconds = time.perf_counter() - start
    print(f"env_steps={store.size} updates={agent.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
