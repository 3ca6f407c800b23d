"""Stable-Baselines3 PPO on a batch of pendulum carts that are simulated together in numpy."""
import os
import time

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class Carts(VecEnv):
    """All carts in one array; an episode ends after 200 ticks or when the pole has fallen."""

    def __init__(self, n, seed):
        super().__init__(n, spaces.Box(-np.inf, np.inf, (4,), np.float32), spaces.Discrete(2))
        self.rng = np.random.default_rng(seed)
        self.state, self.t = np.zeros((n, 4)), np.zeros(n, int)

    def _fresh(self, mask):
        self.state[mask] = self.rng.uniform(-0.05, 0.05, (int(mask.sum()), 4))
        self.t[mask] = 0

    def reset(self):
        self._fresh(np.ones(self.num_envs, bool))
        return self.state.astype(np.float32)

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        x, v, th, w = self.state.T
        force = np.where(self.actions == 1, 10.0, -10.0)
        sin, cos = np.sin(th), np.cos(th)
        temp = (force + 0.05 * w ** 2 * sin) / 1.1
        acc_th = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos ** 2 / 1.1))
        acc = temp - 0.05 * acc_th * cos / 1.1
        self.state = np.stack([x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_th], 1)
        self.t += 1
        fallen = (np.abs(self.state[:, 0]) > 2.4) | (np.abs(self.state[:, 2]) > 0.21)
        late = self.t >= 200
        done = fallen | late
        obs = self.state.astype(np.float32)
        infos = [{} for _ in range(self.num_envs)]
        if done.any():
            for i in np.flatnonzero(done):
                infos[i] = {"terminal_observation": obs[i].copy(), "TimeLimit.truncated": bool(late[i] and not fallen[i])}
            self._fresh(done)
            obs = self.state.astype(np.float32)
        return obs, np.ones(self.num_envs, np.float32), done, infos

    def close(self):
        pass

    def get_attr(self, name, indices=None):
        return [getattr(self, name, None) for _ in self._get_indices(indices)]

    def set_attr(self, name, value, indices=None):
        setattr(self, name, value)

    def env_method(self, name, *args, indices=None, **kwargs):
        return [getattr(self, name)(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False for _ in self._get_indices(indices)]


class Clock(BaseCallback):
    def _on_training_start(self):
        self.start = time.perf_counter()

    def _on_step(self):
        return True

    def _on_training_end(self):
        self.seconds = time.perf_counter() - self.start


def main():
    env = Carts(16, seed=8)
    model = PPO("MlpPolicy", env, n_steps=256, batch_size=1024, n_epochs=8, learning_rate=3e-4, gae_lambda=0.95,
                policy_kwargs={"net_arch": [256, 256]}, seed=8, device="cpu", verbose=0)
    clock = Clock()
    model.learn(total_timesteps=16 * 256 * 7, callback=clock)
    optimiser_steps = model._n_updates * (16 * 256 // 1024)
    print(f"env_steps={model.num_timesteps} updates={optimiser_steps} seconds={clock.seconds:.3f}")


if __name__ == "__main__":
    main()
