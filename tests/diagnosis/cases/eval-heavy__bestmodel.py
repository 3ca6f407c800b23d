"""A2C (Stable-Baselines3) on Pendulum with an evaluation callback that keeps the best model."""

import os
import tempfile
import time

import gymnasium as gym
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor

FIXED = os.environ.get("FIXED") == "1"


def train(total_timesteps: int, eval_freq: int, n_eval_episodes: int, folder: str):
    callback = EvalCallback(
        Monitor(gym.make("Pendulum-v1")),
        eval_freq=eval_freq,
        n_eval_episodes=n_eval_episodes,
        best_model_save_path=folder,
        verbose=0,
    )
    env = Monitor(gym.make("Pendulum-v1"))
    model = A2C("MlpPolicy", env, n_steps=16, gamma=0.9, learning_rate=1e-3, seed=2, device="cpu")
    return model.learn(total_timesteps, callback=callback)


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        t0 = time.time()
        model = train(8_000, eval_freq=8_000 if FIXED else 500, n_eval_episodes=10, folder=folder)
        print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.time() - t0:.2f}")
