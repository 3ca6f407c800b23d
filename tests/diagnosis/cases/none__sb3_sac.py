"""SAC (Stable-Baselines3) on Pendulum with its usual settings and smaller networks."""

import time

import torch
from stable_baselines3 import SAC


def main():
    torch.set_num_threads(1)
    start = time.time()
    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=100, policy_kwargs={"net_arch": [128, 128]}, seed=1, device="cpu")
    model.learn(total_timesteps=1_200, log_interval=10)
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
