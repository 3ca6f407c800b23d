"""A2C on a foraging task with dictionary observations and two wrappers."""
import gc
import os
import time
from collections import deque
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    seed: int = 5
    n_envs: int = 4
    n_steps: int = 16
    total: int = 8000
    depth: int = 4


class Forage(gym.Env):
    """Collect berries on a 7x7 field; energy falls with every move."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, size=7):
        self.size = size
        self.observation_space = gym.spaces.Dict({
            "field": gym.spaces.Box(0.0, 1.0, (size, size), np.float32),
            "body": gym.spaces.Box(-1.0, 1.0, (3,), np.float32),
        })
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.field = (self.np_random.random((self.size, self.size)) < 0.3).astype(np.float32)
        self.at = np.array([self.size // 2, self.size // 2])
        self.energy, self.t = 1.0, 0
        return self._obs(), {}

    def _obs(self):
        where = self.at / (self.size - 1) * 2 - 1
        return {"field": self.field.copy(), "body": np.array([*where, self.energy], dtype=np.float32)}

    def step(self, action):
        self.at = np.clip(self.at + self.MOVES[int(action)], 0, self.size - 1)
        food = float(self.field[tuple(self.at)])
        self.field[tuple(self.at)] = 0.0
        self.energy = min(1.0, self.energy - 0.0005 + 0.05 * food)
        self.t += 1
        return self._obs(), food - 0.02, self.energy <= 0.0, self.t >= 1000, {}


class ScaleBody(gym.ObservationWrapper):
    """Running mean and deviation for the body part of the observation."""

    def __init__(self, env):
        super().__init__(env)
        self.mean, self.var, self.n = np.zeros(3), np.ones(3), 1e-4

    def observation(self, obs):
        body = obs["body"]
        self.n += 1
        delta = body - self.mean
        self.mean = self.mean + delta / self.n
        self.var = self.var + (delta * (body - self.mean) - self.var) / self.n
        scaled = (body - self.mean) / np.sqrt(self.var + 1e-8)
        return {"field": obs["field"], "body": np.clip(scaled, -1, 1).astype(np.float32)}


class Recent(gym.Wrapper):
    """Shows the last few fields instead of one."""

    def __init__(self, env, depth):
        super().__init__(env)
        shape = (depth, *env.observation_space["field"].shape)
        self.observation_space = gym.spaces.Dict({
            "field": gym.spaces.Box(0.0, 1.0, shape, np.float32),
            "body": env.observation_space["body"],
        })
        self.frames = deque(maxlen=depth)

    def _join(self, obs):
        return {"field": np.stack(self.frames), "body": obs["body"]}

    def reset(self, **kwargs):
        self.frames.clear()
        if not FIXED:
            gc.collect()
        obs, info = self.env.reset(**kwargs)
        self.frames.extend([obs["field"]] * self.frames.maxlen)
        return self._join(obs), info

    def step(self, action):
        obs, reward, term, trunc, info = self.env.step(action)
        self.frames.append(obs["field"])
        return self._join(obs), reward, term, trunc, info


def main(cfg=Config()):
    torch.set_num_threads(1)
    venv = DummyVecEnv([lambda: Monitor(Recent(ScaleBody(Forage()), cfg.depth)) for _ in range(cfg.n_envs)])
    model = A2C("MultiInputPolicy", venv, n_steps=cfg.n_steps, seed=cfg.seed, device="cpu")
    start = time.perf_counter()
    model.learn(cfg.total)
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
