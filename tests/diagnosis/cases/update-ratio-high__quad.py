"""TD3 (Stable-Baselines3) for a four-legged balance toy."""

import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.noise import NormalActionNoise

GRADIENT_STEPS = 2 if os.environ.get("FIXED") == "1" else 16


class BalanceEnv(gym.Env):
    """A plate on four springs; the legs push, a gust tilts it."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (4,), np.float32)
        self.lever = np.array([[1, 1, -1, -1], [1, -1, -1, 1]], dtype=float)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.tilt = self.np_random.uniform(-0.4, 0.4, 2)
        self.rate = np.zeros(2)
        self.gust = self.np_random.normal(0, 0.1, 2)
        self.count = 0
        return self.observe(), {}

    def observe(self):
        return np.concatenate([self.tilt, self.rate, self.gust]).astype(np.float32)

    def step(self, action):
        self.gust = 0.9 * self.gust + self.np_random.normal(0, 0.05, 2)
        self.rate = 0.9 * self.rate + 0.2 * (0.25 * self.lever @ action - self.tilt + self.gust)
        self.tilt = self.tilt + 0.2 * self.rate
        self.count += 1
        cost = float(np.square(self.tilt).sum() + 0.01 * np.square(action).sum())
        return self.observe(), -cost, False, self.count >= 120, {}


if __name__ == "__main__":
    torch.set_num_threads(1)
    start = time.time()
    noise = NormalActionNoise(np.zeros(4), 0.1 * np.ones(4))
    model = TD3(
        "MlpPolicy",
        BalanceEnv(),
        action_noise=noise,
        learning_starts=200,
        train_freq=4,
        gradient_steps=GRADIENT_STEPS,
        batch_size=128,
        policy_kwargs={"net_arch": [64, 64]},
        seed=17,
        device="cpu",
    )
    model.learn(1100)
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.time() - start:.2f}")
