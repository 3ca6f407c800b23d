"""PPO (Stable-Baselines3) on many mountain cars; a callback keeps an eye on the critic."""

import os
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import explained_variance

EVERY_STEP = os.environ.get("FIXED") != "1"
ENVS, STEPS = 8, 8192


class Critic(BaseCallback):
    """How much of the variance of returns the critic explains, now and some steps ahead."""

    def __init__(self):
        super().__init__()
        self.smooth = dict.fromkeys((0, 8, 64), 0.0)

    def watch(self):
        buffer = self.model.rollout_buffer
        values, returns = buffer.values.ravel(), buffer.returns.ravel()
        for ahead, before in self.smooth.items():
            explained = explained_variance(values[: len(values) - ahead], returns[ahead:])
            self.smooth[ahead] = before + 0.1 * (float(explained) - before) if explained == explained else before

    def _on_step(self):
        if EVERY_STEP:
            self.watch()
        return True

    def _on_rollout_end(self):
        self.watch()


def main():
    torch.set_num_threads(1)
    model = PPO(
        "MlpPolicy", make_vec_env("MountainCar-v0", n_envs=ENVS, seed=4), n_steps=STEPS, batch_size=4096, n_epochs=1,
        policy_kwargs={"net_arch": [32]}, seed=4, device="cpu",
    )  # fmt: skip
    start = time.perf_counter()
    model.learn(ENVS * STEPS, callback=Critic())
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
