"""A2C picking parcels on a warehouse floor that is laid out anew for every episode."""

import gc
import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

FIXED = os.environ.get("FIXED") == "1"
SEED = 29
N_ENVS = 4
VEC_STEPS = 2_250
COLLECT_EVERY = 64 if FIXED else 1
HEADINGS = [(1, 0), (-1, 0), (0, 1), (0, -1)]


class Parcel:
    def __init__(self, cell, weight):
        self.cell = cell
        self.weight = weight


class Cell:
    def __init__(self, floor, x, y):
        self.floor = floor
        self.x, self.y = x, y
        self.links = [None] * len(HEADINGS)
        self.parcel = None


class Floor:
    """Graph of cells; shelves are simply cells that were left out."""

    def __init__(self, rng, size, n_parcels):
        blocked = rng.random((size, size)) < 0.12
        blocked[0, 0] = False
        self.cells = {
            (x, y): Cell(self, x, y) for x in range(size) for y in range(size) if not blocked[x, y]
        }
        for (x, y), cell in self.cells.items():
            cell.links = [self.cells.get((x + dx, y + dy)) for dx, dy in HEADINGS]
        spots = rng.choice(len(self.cells), size=n_parcels, replace=False)
        free = list(self.cells.values())
        self.parcels = []
        for spot in spots:
            cell = free[int(spot)]
            cell.parcel = Parcel(cell, float(rng.uniform(0.5, 2.0)))
            self.parcels.append(cell.parcel)


class PickingEnv(gym.Env):
    def __init__(self, size: int = 14, n_parcels: int = 10, horizon: int = 250):
        self.size, self.n_parcels, self.horizon = size, n_parcels, horizon
        self.observation_space = spaces.Box(-1.0, 1.0, (9,), np.float32)
        self.action_space = spaces.Discrete(len(HEADINGS))
        self.floor = None
        self.layouts = 0

    def _new_layout(self):
        self.floor = self.robot = None
        self.layouts += 1
        if self.layouts % COLLECT_EVERY == 0:
            gc.collect()
        self.floor = Floor(self.np_random, self.size, self.n_parcels)
        self.robot = self.floor.cells[0, 0]

    def _obs(self):
        x, y = self.robot.x, self.robot.y
        dx = dy = 0
        if self.floor.parcels:
            near = min(self.floor.parcels, key=lambda p: abs(p.cell.x - x) + abs(p.cell.y - y))
            dx, dy = near.cell.x - x, near.cell.y - y
        walls = [0.0 if link is None else 1.0 for link in self.robot.links]
        left = len(self.floor.parcels) / self.n_parcels
        scale = 1.0 / self.size
        return np.array([x * scale, y * scale, dx * scale, dy * scale, left, *walls], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self._new_layout()
        return self._obs(), {}

    def step(self, action):
        reward = -0.01
        target = self.robot.links[int(action)]
        if target is None:
            reward -= 0.02
        else:
            self.robot = target
        parcel = self.robot.parcel
        if parcel is not None:
            reward += parcel.weight
            self.robot.parcel = None
            self.floor.parcels.remove(parcel)
        self.t += 1
        return self._obs(), reward, False, self.t >= self.horizon, {}


def main():
    th.set_num_threads(1)
    env = make_vec_env(PickingEnv, n_envs=N_ENVS, seed=SEED)
    model = A2C("MlpPolicy", env, n_steps=5, learning_rate=7e-4, ent_coef=0.01, seed=SEED, device="cpu")
    start = time.perf_counter()
    model.learn(total_timesteps=VEC_STEPS * N_ENVS, log_interval=100)
    seconds = time.perf_counter() - start
    print(f"mean return: {np.mean([ep['r'] for ep in model.ep_info_buffer]):.2f}")
    env.close()
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
