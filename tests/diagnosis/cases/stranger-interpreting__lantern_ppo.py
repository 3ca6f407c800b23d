"""PPO on a small navigation task, with a callback that reports how much of the state space was seen."""
import os
import time
from bisect import bisect_right
from collections import Counter
from itertools import combinations

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

FIXED = os.environ.get("FIXED") == "1"
TOTAL = 24576


class Rover(gym.Env):
    """A point with inertia looks for a beacon on a plane."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-3.0, 3.0, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = self.np_random.uniform(-1, 1, 2)
        self.vel = np.zeros(2)
        self.goal = self.np_random.uniform(-1, 1, 2)
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        return np.concatenate([self.pos, self.vel, self.goal - self.pos]).clip(-3, 3).astype(np.float32)

    def step(self, action):
        self.vel = 0.9 * self.vel + 0.1 * np.asarray(action, dtype=np.float64)
        self.pos = np.clip(self.pos + 0.2 * self.vel, -2, 2)
        dist = float(np.hypot(*(self.goal - self.pos)))
        self.t += 1
        return self._obs(), -dist, dist < 0.05, self.t >= 100, {"dist": dist}


class Coverage(BaseCallback):
    """Counts visits to the cells of several lattices, and to their projections on three axes."""

    def __init__(self, scales=(4, 5, 6, 8, 10, 12), dims=6):
        super().__init__()
        self.edges = {cells: np.linspace(-3.0, 3.0, cells + 1)[1:-1] for cells in scales}
        self.axes = list(combinations(range(dims), 3))
        self.faces = {cells: np.zeros((len(self.axes), cells ** 3), np.int64) for cells in scales}
        self.seen = Counter()

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        obs = self.model.rollout_buffer.observations
        rows = obs.reshape(-1, obs.shape[-1])
        for cells, edges in self.edges.items():
            add = self._add_block if FIXED else self._add_rows
            self.faces[cells] += add(cells, edges, rows)
        self.logger.record("coverage/cells", len(self.seen))

    def _add_rows(self, cells, edges, rows):
        edges, table = edges.tolist(), [[0] * cells ** 3 for _ in self.axes]
        for row in rows.tolist():
            spots = [bisect_right(edges, value) for value in row]
            self.seen[sum(spot * cells ** d for d, spot in enumerate(spots))] += 1
            for counts, (i, j, k) in zip(table, self.axes):
                counts[(spots[i] * cells + spots[j]) * cells + spots[k]] += 1
        return np.array(table)

    def _add_block(self, cells, edges, rows):
        spots = np.searchsorted(edges, rows, side="right")
        self.seen.update((spots @ (cells ** np.arange(spots.shape[1]))).tolist())
        keys = [(spots[:, i] * cells + spots[:, j]) * cells + spots[:, k] for i, j, k in self.axes]
        return np.stack([np.bincount(key, minlength=cells ** 3) for key in keys])


class Distance(BaseCallback):
    def __init__(self):
        super().__init__()
        self.total = 0.0

    def _on_step(self):
        self.total += sum(info["dist"] for info in self.locals["infos"])
        return True


def main():
    torch.set_num_threads(1)
    venv = make_vec_env(Rover, n_envs=16, seed=3)
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=256, n_epochs=4, seed=3, device="cpu")
    start = time.perf_counter()
    model.learn(TOTAL, callback=CallbackList([Distance(), Coverage()]))
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
