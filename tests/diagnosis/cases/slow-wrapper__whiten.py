"""A2C (Stable-Baselines3) on Pendulum with discrete torques and whitened observations."""

import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C

FIXED = os.environ.get("FIXED") == "1"


class DiscreteTorque(gym.ActionWrapper):
    def __init__(self, env, levels=5):
        super().__init__(env)
        self.torques = np.linspace(env.action_space.low, env.action_space.high, levels).astype(np.float32)
        self.action_space = gym.spaces.Discrete(levels)

    def action(self, action):
        return self.torques[action]


class Whiten(gym.ObservationWrapper):
    """Scales observations by the mean and deviation of the latest ones."""

    def __init__(self, env, window=3000):
        super().__init__(env)
        self.window = deque(maxlen=window)
        self.total, self.square = np.zeros(3), np.zeros(3)

    def observation(self, obs):
        if FIXED:
            if len(self.window) == self.window.maxlen:
                old = self.window[0]
                self.total -= old
                self.square -= old.astype(np.float64) ** 2
            self.window.append(obs)
            self.total += obs
            self.square += obs.astype(np.float64) ** 2
            mean = self.total / len(self.window)
            std = np.sqrt(np.maximum(self.square / len(self.window) - mean**2, 0.0))
        else:
            self.window.append(obs)
            history = np.array(self.window, dtype=np.float64)
            mean, std = history.mean(axis=0), history.std(axis=0)
        return ((obs - mean) / (std + 1e-3)).astype(np.float32)


def make_env():
    return Whiten(DiscreteTorque(gym.make("Pendulum-v1")))


def main():
    torch.set_num_threads(1)
    started = time.time()
    model = A2C("MlpPolicy", make_env(), n_steps=32, gamma=0.95, policy_kwargs={"net_arch": [32, 32]}, seed=20, device="cpu")
    model.learn(9_000)
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.time() - started:.2f}")


if __name__ == "__main__":
    main()
