"""PPO from stable-baselines3 on a berth allocation problem (custom gymnasium env, callback for statistics)."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

TOTAL_STEPS = 8_192
ROLLOUT = 2048
NUM_ENVS = 8 if FIXED else 1


class BerthEnv(gym.Env):
    """Ships arrive one after another; each is sent to one of four berths, and waits if it is taken."""

    BERTHS = 4

    def __init__(self, horizon=100):
        self.horizon = horizon
        self.observation_space = spaces.Box(-1.0, 10.0, (2 * self.BERTHS + 3,), np.float32)
        self.action_space = spaces.Discrete(self.BERTHS)

    def _draw_ship(self):
        self.size = self.np_random.random()
        self.gap = self.np_random.exponential(0.35)
        self.urgent = float(self.np_random.random() < 0.2)

    def _observe(self):
        obs = np.empty(2 * self.BERTHS + 3, np.float32)
        obs[:self.BERTHS] = np.minimum(self.busy, 10.0)
        obs[self.BERTHS:2 * self.BERTHS] = self.cranes
        obs[-3:] = self.size, self.gap, self.urgent
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.busy = np.zeros(self.BERTHS)
        self.cranes = self.np_random.uniform(0.5, 1.5, self.BERTHS)
        self._draw_ship()
        return self._observe(), {}

    def step(self, action):
        wait = self.busy[action]
        service = (0.3 + self.size) / self.cranes[action]
        self.busy[action] += service
        reward = -float(wait * (3.0 if self.urgent else 1.0) + 0.2 * service)
        self.busy = np.maximum(self.busy - self.gap, 0.0)
        self.t += 1
        self._draw_ship()
        return self._observe(), reward, False, self.t >= self.horizon, {}


class WaitingStats(BaseCallback):
    def __init__(self):
        super().__init__()
        self.per_rollout = []
        self.total = 0.0

    def _on_step(self):
        self.total += float(self.locals["rewards"].sum())
        return True

    def _on_rollout_end(self):
        self.per_rollout.append(self.total / ROLLOUT)
        self.total = 0.0


def build(seed=11):
    venv = make_vec_env(BerthEnv, n_envs=NUM_ENVS, seed=seed)
    return PPO(
        "MlpPolicy",
        venv,
        n_steps=ROLLOUT // NUM_ENVS,
        batch_size=64,
        n_epochs=10,
        learning_rate=5e-4,
        gamma=0.97,
        ent_coef=0.005,
        policy_kwargs={"net_arch": [64, 64]},
        seed=seed,
        device="cpu",
        verbose=0,
    )


def main():
    model = build()
    stats = WaitingStats()
    start = time.perf_counter()
    model.learn(TOTAL_STEPS, callback=stats)
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
