"""PPO (stable-baselines3) on a tank-level task, with a callback that follows the health of the network."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class TwoTanks(gym.Env):
    """Keep the lower of two coupled tanks at a set point with the inlet valve."""

    def __init__(self):
        self.observation_space = gym.spaces.Box(-5, 5, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.upper, self.lower, self.goal = self.np_random.uniform(0.2, 1.0, 3)
        self.t = 0
        return self.observe(), {}

    def observe(self):
        return np.array([self.upper, self.lower, self.goal, self.goal - self.lower], dtype=np.float32)

    def step(self, action):
        inlet = 0.5 * (float(action[0]) + 1.0)
        flow = 0.3 * self.upper ** 0.5
        out = 0.25 * self.lower ** 0.5
        self.upper = min(max(self.upper + 0.2 * (inlet - flow), 0.0), 2.0)
        self.lower = min(max(self.lower + 0.2 * (flow - out), 0.0), 2.0)
        self.t += 1
        reward = -abs(self.goal - self.lower)
        return self.observe(), reward, False, self.t >= 100, {}


class ReturnTracker(BaseCallback):
    def __init__(self):
        super().__init__()
        self.returns = []

    def _on_step(self):
        for info in self.locals["infos"]:
            if "episode" in info:
                self.returns.append(info["episode"]["r"])
        return True


class NetworkHealth(BaseCallback):
    """Norm, spread and share of tiny weights for each layer, shown next to the usual numbers."""

    def __init__(self):
        super().__init__()
        self.stats = {}

    def measure(self):
        for name, p in self.model.policy.named_parameters():
            w = p.detach()
            self.stats[name] = {
                "norm": w.norm().item(),
                "spread": (w.max() - w.min()).item(),
                "tiny": (w.abs() < 1e-3).float().mean().item(),
                "grad": 0.0 if p.grad is None else p.grad.norm().item(),
            }

    def publish(self):
        for name, values in self.stats.items():
            for key, value in values.items():
                self.logger.record(f"{name}/{key}", value)

    def _on_step(self):
        if not FIXED:
            self.measure()
        return True

    def _on_rollout_end(self):
        if FIXED:
            self.measure()
        self.publish()


def main():
    venv = make_vec_env(TwoTanks, n_envs=4, seed=11)
    model = PPO(
        "MlpPolicy",
        venv,
        n_steps=256,
        batch_size=256,
        n_epochs=6,
        learning_rate=1e-3,
        gamma=0.97,
        policy_kwargs=dict(net_arch=[64, 64]),
        seed=11,
        device="cpu",
        verbose=0,
    )
    tracker = ReturnTracker()
    start = time.perf_counter()
    model.learn(total_timesteps=16384, callback=CallbackList([tracker, NetworkHealth()]))
    seconds = time.perf_counter() - start
    print(f"return of the first and last ten episodes {np.mean(tracker.returns[:10]):.2f} {np.mean(tracker.returns[-10:]):.2f}")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates * 4} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
