"""A2C on CartPole with noisy sensors; keeps a book of recent episodes for the weekly plots."""
import gc
import os
import time
from collections import deque

import gymnasium as gym
import numpy as np
import psutil
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

FIXED = os.environ.get("FIXED") == "1"
SEED = 23
N_ENVS = 8
N_STEPS = 192
ROLLOUTS = 12
SOFT_LIMIT_MB = 8192 if FIXED else 192


class NoisySensors(gym.ObservationWrapper):
    """Adds read-out noise and a slowly wandering offset on the pole angle."""

    def __init__(self, env, noise=0.01):
        super().__init__(env)
        self.noise = noise
        self.offset = 0.0

    def reset(self, **kwargs):
        self.offset = 0.0
        return super().reset(**kwargs)

    def observation(self, obs):
        self.offset = 0.99 * self.offset + self.noise * 0.1 * float(self.np_random.standard_normal())
        noisy = obs + self.noise * self.np_random.standard_normal(4).astype(np.float32)
        noisy[2] += self.offset
        return noisy


class EpisodeBook(BaseCallback):
    """Traces of the latest episodes per environment, and a report every few rollouts."""

    def __init__(self, limit_mb, keep=200):
        super().__init__()
        self.limit = limit_mb * 2**20
        self.process = psutil.Process()
        self.open = [[] for _ in range(N_ENVS)]
        self.book = deque(maxlen=keep)
        self.lengths = deque(maxlen=100)
        self.rollouts = 0

    def _on_step(self):
        rewards = self.locals["rewards"]
        for i, done in enumerate(self.locals["dones"]):
            self.open[i].append(float(rewards[i]))
            if done:
                self.book.append({"env": i, "end": self.num_timesteps, "rewards": self.open[i]})
                self.lengths.append(len(self.open[i]))
                self.open[i] = []
        return True

    def _tidy(self):
        while len(self.book) > 50:
            self.book.popleft()
        gc.collect()

    def _on_rollout_end(self):
        self.rollouts += 1
        if self.process.memory_info().rss > self.limit:
            self._tidy()
        if self.rollouts % 3 == 0:
            mean = np.mean(self.lengths) if self.lengths else float("nan")
            print(f"steps={self.num_timesteps} episodes in book={len(self.book)} mean length={mean:.1f}")


def linear(start, end):
    return lambda left: end + (start - end) * left


def main():
    torch.set_num_threads(1)
    venv = make_vec_env("CartPole-v1", n_envs=N_ENVS, seed=SEED, wrapper_class=NoisySensors)
    model = A2C(
        "MlpPolicy", venv, n_steps=N_STEPS, learning_rate=linear(2e-3, 5e-4), gamma=0.98, gae_lambda=0.95,
        ent_coef=0.001, normalize_advantage=True, policy_kwargs={"net_arch": [64, 64]}, seed=SEED, device="cpu",
    )
    start = time.perf_counter()
    model.learn(ROLLOUTS * N_STEPS * N_ENVS, callback=EpisodeBook(SOFT_LIMIT_MB))
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
