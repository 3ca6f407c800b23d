"""PPO on a synthetic spread-trading market (stable-baselines3)."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N_ENVS = 4
TOTAL_STEPS = 15360
EPISODE_LEN = 256
WINDOW = 12


class SpreadMarket(gym.Env):
    """Mean-reverting spread; the agent is short, flat or long."""

    def __init__(self, seed):
        self.observation_space = spaces.Box(-np.inf, np.inf, (WINDOW + 2,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.rng = np.random.default_rng(seed)
        self.fee = 0.0008

    def reset(self, *, seed=None, options=None):
        noise = self.rng.normal(0.0, 0.02, EPISODE_LEN + WINDOW + 1)
        path = np.empty_like(noise)
        level = 0.0
        for i, eps in enumerate(noise):
            level += -0.12 * level + eps
            path[i] = level
        self.path = path
        self.t = WINDOW
        self.position = 0
        self.entry = 0.0
        self.equity = 1.0
        self.orders = []
        return self._obs(), {}

    def _obs(self):
        window = self.path[self.t - WINDOW:self.t] * 20.0
        return np.concatenate([window, [self.position, (self.equity - 1.0) * 10.0]]).astype(np.float32)

    def step(self, action):
        target = int(action) - 1
        price = float(self.path[self.t])
        cost = self.fee * abs(target - self.position)
        if target != self.position:
            self.orders.append({
                "t": self.t,
                "side": "buy" if target > self.position else "sell",
                "price": price,
                "size": target - self.position,
                "pnl": (price - self.entry) * self.position - cost,
            })
            self.entry = price
            self.position = target
        self.t += 1
        gain = self.position * (float(self.path[self.t]) - price) - cost
        self.equity += gain
        truncated = self.t >= EPISODE_LEN + WINDOW
        info = {"equity": self.equity, "position": self.position}
        if truncated or not FIXED:
            info["orders"] = self.orders
        return self._obs(), gain * 50.0, False, truncated, info


class TradeReport(BaseCallback):
    """Win rate and final equity of the finished episodes."""

    def __init__(self):
        super().__init__()
        self.win_rates, self.equities = [], []

    def _on_step(self):
        for done, info in zip(self.locals["dones"], self.locals["infos"]):
            if done:
                pnl = [order["pnl"] for order in info["orders"]]
                self.win_rates.append(np.mean([p > 0 for p in pnl]) if pnl else 0.0)
                self.equities.append(info["equity"])
        return True

    def _on_rollout_end(self):
        if self.equities:
            print(f"steps {self.num_timesteps:6d}  equity {np.mean(self.equities[-8:]):.3f}  "
                  f"wins {np.mean(self.win_rates[-8:]):.2f}")


def main():
    venv = DummyVecEnv([lambda i=i: SpreadMarket(100 + i) for i in range(N_ENVS)])
    model = PPO("MlpPolicy", venv, n_steps=256, batch_size=256, n_epochs=4, gamma=0.97, ent_coef=0.003,
                learning_rate=7e-4, seed=3, device="cpu", policy_kwargs={"net_arch": [64, 64]})
    start = time.perf_counter()
    model.learn(TOTAL_STEPS, callback=TradeReport())
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
