"""stable-baselines3 on CartPole: `python train.py PPO|A2C ENVS`. Samples per update are the same whatever the number."""

import sys
import time

import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env

torch.set_num_threads(1)
kind, envs = sys.argv[1], int(sys.argv[2])
env = make_vec_env("CartPole-v1", n_envs=envs, seed=1) if envs > 1 else "CartPole-v1"
model = (
    PPO("MlpPolicy", env, n_steps=2048 // envs, seed=1) if kind == "PPO" else A2C("MlpPolicy", env, n_steps=40 // envs, seed=1)
)
model.learn(512)  # torch's first calls are slow
begin = time.perf_counter()
model.learn(16384, reset_num_timesteps=True)
print("seconds", time.perf_counter() - begin)
