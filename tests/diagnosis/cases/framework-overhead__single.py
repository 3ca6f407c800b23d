"""DQN (Stable-Baselines3) on CartPole, one update per 32 environment steps."""

import os
import time

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

N_ENVS = 32 if os.environ.get("FIXED") == "1" else 1


def build(n_envs):
    return DQN(
        "MlpPolicy",
        make_vec_env("CartPole-v1", n_envs=n_envs, seed=8),
        buffer_size=50_000,
        learning_starts=1024,
        batch_size=128,
        train_freq=32 // n_envs,
        gradient_steps=1,
        target_update_interval=1024,
        policy_kwargs={"net_arch": [32, 32]},
        seed=8,
        device="cpu",
    )


def main():
    torch.set_num_threads(1)
    model = build(N_ENVS)
    start = time.time()
    model.learn(total_timesteps=32_768)
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
