"""Pilot for docking a small boat in a cross current; the water gets rougher as the pilot improves."""
import math
import multiprocessing as mp
import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
SEED = 11
N_ENVS = 8
N_STEPS = 256
ROLLOUTS = 6
CALM = {"current": 0.1, "gust": 0.02}


class HarbourEnv(gym.Env):
    """Thrust and rudder; the berth is at the origin, heading 0."""

    dt = 0.1
    max_steps = 120

    def __init__(self, water):
        self.water = water
        high = np.full(7, np.inf, dtype=np.float32)
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, shape=(2,), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.y = self.np_random.uniform(-4.0, 4.0, size=2).tolist()
        self.heading = float(self.np_random.uniform(-1.0, 1.0))
        self.speed = 0.0
        self.turn = 0.0
        self.t = 0
        return self._observe(), {}

    def _observe(self):
        return np.array(
            [self.x, self.y, math.sin(self.heading), math.cos(self.heading), self.speed, self.turn, self.t / self.max_steps],
            dtype=np.float32,
        )

    def step(self, action):
        thrust, rudder = np.clip(action, -1.0, 1.0).tolist()
        before = math.hypot(self.x, self.y)
        drift = self.water["current"] + self.water["gust"] * float(self.np_random.standard_normal())
        self.speed += self.dt * (2.0 * thrust - 0.5 * self.speed)
        self.turn += self.dt * (1.5 * rudder - 0.8 * self.turn)
        self.heading += self.dt * self.turn
        self.x += self.dt * self.speed * math.cos(self.heading)
        self.y += self.dt * (self.speed * math.sin(self.heading) + drift)
        self.t += 1
        distance = math.hypot(self.x, self.y)
        docked = distance < 0.4
        lost = distance > 8.0
        reward = (before - distance) - 0.01 * (thrust * thrust + rudder * rudder)
        reward += 5.0 * docked - 2.0 * lost
        truncated = self.t >= self.max_steps
        info = {"docked": docked} if docked or lost or truncated else {}
        return self._observe(), reward, docked or lost, truncated, info


class RougherWater(BaseCallback):
    """Raise current and gusts once the last hundred trips go well."""

    def __init__(self, water):
        super().__init__()
        self.water = water
        self.trips = deque(maxlen=100)

    def _on_step(self):
        for info in self.locals["infos"]:
            if "docked" in info:
                self.trips.append(info["docked"])
        return True

    def _on_rollout_end(self):
        rate = float(np.mean(self.trips)) if self.trips else 0.0
        if rate > 0.25:
            self.water["current"] = min(self.water["current"] + 0.05, 0.6)
            self.water["gust"] = min(self.water["gust"] + 0.01, 0.2)
        print(f"trips={len(self.trips)} docked={rate:.2f} current={self.water['current']:.2f}")


def main():
    torch.set_num_threads(1)
    manager = None if FIXED else mp.Manager()
    water = dict(CALM) if FIXED else manager.dict(CALM)
    venv = DummyVecEnv([lambda: Monitor(HarbourEnv(water)) for _ in range(N_ENVS)])
    model = PPO(
        "MlpPolicy", venv, n_steps=N_STEPS, batch_size=256, n_epochs=4, learning_rate=5e-4,
        gamma=0.98, ent_coef=0.003, seed=SEED, device="cpu",
    )
    start = time.perf_counter()
    model.learn(ROLLOUTS * N_STEPS * N_ENVS, callback=RougherWater(water))
    seconds = time.perf_counter() - start
    updates = model._n_updates * (N_STEPS * N_ENVS // 256)
    if manager is not None:
        manager.shutdown()
    print(f"env_steps={model.num_timesteps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
