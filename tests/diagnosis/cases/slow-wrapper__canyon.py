"""PPO (stable-baselines3) flying a small craft through a scrolling cave, from pixels."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
H, W, CELL = 48, 48, 4


class CaveEnv(gym.Env):
    """A 48x48 RGB picture; walls scroll to the left, the craft climbs, sinks or holds."""

    observation_space = spaces.Box(0, 255, (H, W, 3), np.uint8)
    action_space = spaces.Discrete(3)

    def __init__(self, horizon=200):
        self.horizon = horizon
        self.rows = np.arange(H)[:, None]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.mid = np.full(W, H // 2, dtype=np.float64)
        self.y, self.vy, self.t = H / 2, 0.0, 0
        return self._picture(), {}

    def _picture(self):
        frame = np.zeros((H, W, 3), np.uint8)
        frame[..., 0] = np.where(np.abs(self.rows - self.mid[None]) > 12, 200, 20)
        frame[..., 1] = frame[..., 0] // 2
        y = int(self.y)
        frame[max(y - 2, 0):y + 2, 6:12, 2] = 255
        return frame

    def step(self, action):
        self.vy = 0.8 * self.vy + (int(action) - 1) * 0.9
        self.y = float(np.clip(self.y + self.vy, 0, H - 1))
        self.mid[:-1] = self.mid[1:]
        self.mid[-1] = np.clip(self.mid[-2] + self.np_random.normal(0, 1.0), 14, H - 14)
        self.t += 1
        crash = abs(self.y - self.mid[8]) > 12
        reward = -5.0 if crash else 0.1
        return self._picture(), reward, bool(crash), self.t >= self.horizon, {}


class CoarseView(gym.ObservationWrapper):
    """Luminance, averaged over cells, scaled to [-1, 1], flattened."""

    def __init__(self, env, cell=CELL):
        super().__init__(env)
        self.cell = cell
        self.weights = np.array([0.299, 0.587, 0.114], np.float32)
        self.shape = (H // cell, W // cell)
        self.observation_space = spaces.Box(-1.0, 1.0, (self.shape[0] * self.shape[1],), np.float32)

    def observation(self, observation):
        c = self.cell
        if FIXED:
            cells = observation.reshape(self.shape[0], c, self.shape[1], c, 3).mean((1, 3), dtype=np.float32)
            return (cells @ self.weights).ravel() / 127.5 - 1.0
        out = np.zeros(self.shape, np.float32)
        for i in range(self.shape[0]):
            for j in range(self.shape[1]):
                patch = observation[i * c:(i + 1) * c, j * c:(j + 1) * c]
                out[i, j] = (patch @ self.weights).mean() / 127.5 - 1.0
        return out.ravel()


class LastAction(gym.Wrapper):
    """Appends the previous action, one-hot."""

    def __init__(self, env):
        super().__init__(env)
        n = env.observation_space.shape[0] + env.action_space.n
        self.observation_space = spaces.Box(-1.0, 1.0, (n,), np.float32)
        self.eye = np.eye(env.action_space.n, dtype=np.float32)

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        return np.concatenate([obs, self.eye[1]]), info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return np.concatenate([obs, self.eye[int(action)]]), reward, terminated, truncated, info


class Clock(BaseCallback):
    def __init__(self):
        super().__init__()
        self.rollouts = 0

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.rollouts += 1


def make_env():
    return LastAction(CoarseView(CaveEnv()))


def main():
    torch.set_num_threads(1)
    venv = DummyVecEnv([make_env] * 4)
    epochs, batch, n_steps = 8, 64, 256
    model = PPO("MlpPolicy", venv, n_steps=n_steps, batch_size=batch, n_epochs=epochs, seed=1, device="cpu",
                policy_kwargs={"net_arch": [128, 128]})
    clock = Clock()
    total = 5 * n_steps * venv.num_envs
    start = time.perf_counter()
    model.learn(total, callback=clock)
    seconds = time.perf_counter() - start
    updates = clock.rollouts * epochs * (n_steps * venv.num_envs // batch)
    print(f"env_steps={model.num_timesteps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
