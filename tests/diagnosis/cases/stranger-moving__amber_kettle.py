"""Behaviour cloning from recorded deliveries: camera pictures of a small town, four moves."""
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from gymnasium import spaces

FIXED = os.environ.get("FIXED") == "1"
CELLS, ZOOM, SIDE = 16, 2, 32
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class Town(gym.Env):
    """Drive to the customer; the blocks slow the van down for a step."""

    def __init__(self, limit=40):
        self.limit = limit
        self.observation_space = spaces.Box(0, 255, shape=(3, SIDE, SIDE), dtype=np.uint8)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.blocks = self.np_random.random((CELLS, CELLS)) < 0.15
        self.van, self.customer = self.np_random.integers(0, CELLS, size=(2, 2))
        self.ground = np.zeros((3, SIDE, SIDE), dtype=np.uint8)
        self.ground[0] = np.kron(self.blocks, np.ones((ZOOM, ZOOM))) * 180
        self._stamp(self.ground[1], self.customer)
        self.t, self.stuck = 0, False
        return self._picture(), {}

    @staticmethod
    def _stamp(layer, cell):
        r, c = cell * ZOOM
        layer[max(r - 1, 0):r + ZOOM + 1, max(c - 1, 0):c + ZOOM + 1] = 255

    def _picture(self):
        picture = self.ground.copy()
        self._stamp(picture[2], self.van)
        return picture

    def step(self, action):
        if self.stuck:
            self.stuck = False
        else:
            self.van = np.clip(self.van + MOVES[action], 0, CELLS - 1)
            self.stuck = bool(self.blocks[tuple(self.van)])
        self.t += 1
        there = bool((self.van == self.customer).all())
        return self._picture(), 10.0 * there - 0.1, there, self.t >= self.limit, {}


def driver(env):
    gap = env.customer - env.van
    axis = int(np.abs(gap).argmax())
    return (0 if gap[1] > 0 else 1) if axis == 1 else (2 if gap[0] > 0 else 3)


def record(path, count, seed):
    env = Town()
    frames, actions = np.empty((count, 3, SIDE, SIDE), np.uint8), np.empty(count, np.int64)
    obs, _ = env.reset(seed=seed)
    for i in range(count):
        frames[i], actions[i] = obs, driver(env)
        obs, _, term, trunc, _ = env.step(actions[i])
        if term or trunc or (env.van == env.customer).all():
            obs, _ = env.reset()
    np.savez_compressed(path, frames=frames, actions=actions)


class Recordings:
    def __init__(self, path):
        self.data = np.load(path)
        if FIXED:
            with self.data as archive:
                self.data = {name: archive[name] for name in archive.files}
        self.length = len(self.data["actions"])

    def batches(self, size, rng):
        order = rng.permutation(self.length)
        for first in range(0, self.length - size + 1, size):
            rows = order[first:first + size]
            yield self._pick("frames", rows), self._pick("actions", rows)

    def _pick(self, name, rows):
        return torch.from_numpy(self.data[name][rows])


class Driver(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(3, 16, 4, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, frames):
        return self.head(self.eye(frames.float() / 255.0))


def trial(net, envs, steps=30):
    total, (obs, _) = 0.0, envs.reset(seed=1000)
    for _ in range(steps):
        with torch.no_grad():
            action = net(torch.from_numpy(obs)).softmax(1).multinomial(1).squeeze(1).numpy()
        obs, reward, _, _, _ = envs.step(action)
        total += float(reward.mean())
    return total, steps * envs.num_envs


def main(epochs=9, batch=128):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    rng, env_steps, updates = np.random.default_rng(3), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "deliveries.npz")
        record(path, 2500, seed=3)
        recordings = Recordings(path)
        envs = gym.vector.SyncVectorEnv([Town] * 8)
        net = Driver()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        start = time.perf_counter()
        for epoch in range(epochs):
            for frames, actions in recordings.batches(batch, rng):
                loss = nn.functional.cross_entropy(net(frames), actions)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                updates += 1
            score, steps = trial(net, envs)
            env_steps += steps
            print(f"epoch {epoch} loss {loss.item():.3f} return {score:.2f}")
        seconds = time.perf_counter() - start
        if not FIXED:
            recordings.data.close()
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


main()
