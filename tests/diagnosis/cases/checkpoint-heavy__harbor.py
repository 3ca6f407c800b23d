"""DQN (Stable-Baselines3) that berths ships in a harbour with many quays."""
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback

FIXED = os.environ.get("FIXED") == "1"
QUAYS = 24


class HarborEnv(gym.Env):
    """Each tick one ship arrives and is sent to a quay; queues shrink by one per tick."""

    observation_space = spaces.Box(0.0, 1.0, (2 * QUAYS + 2,), np.float32)
    action_space = spaces.Discrete(QUAYS)

    def __init__(self, length=200):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.queue = np.zeros(QUAYS, np.float32)
        self.speed = self.np_random.uniform(0.02, 0.08, QUAYS).astype(np.float32)
        self.t = 0
        self._arrive()
        return self._observe(), {}

    def _arrive(self):
        self.load = float(self.np_random.uniform(0.2, 1.0))

    def _observe(self):
        extra = np.array([self.load, self.t / self.length], np.float32)
        return np.concatenate([np.minimum(self.queue, 1.0), self.speed * 10, extra])

    def step(self, action):
        wait = self.queue[action] / self.speed[action]
        self.queue[action] += 0.1 * self.load
        self.queue = np.maximum(self.queue - self.speed * 0.1, 0.0)
        self.t += 1
        self._arrive()
        return self._observe(), -0.05 * float(wait), False, self.t >= self.length, {}


class KeepState(BaseCallback):
    """Keeps the agent and its experience on disk so that a preempted job can go on."""

    def __init__(self, folder, every):
        super().__init__()
        self.folder, self.every = folder, every
        self.kept = 0

    def _on_step(self):
        if self.n_calls % self.every == 0:
            self.model.save(os.path.join(self.folder, "agent"))
            self.model.save_replay_buffer(os.path.join(self.folder, "experience"))
            self.kept += 1
        return True


class WaitStats(BaseCallback):
    def _on_training_start(self):
        self.total, self.count = 0.0, 0

    def _on_step(self):
        self.total += float(self.locals["rewards"][0])
        self.count += 1
        return True


def build():
    return DQN(
        "MlpPolicy",
        HarborEnv(),
        learning_rate=5e-4,
        buffer_size=50_000,
        learning_starts=200,
        batch_size=64,
        gamma=0.97,
        train_freq=4,
        gradient_steps=1,
        target_update_interval=500,
        exploration_fraction=0.4,
        policy_kwargs={"net_arch": [64, 64]},
        seed=4,
        device="cpu",
    )


def main(total=6000):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = build()
        keep = KeepState(folder, every=2500 if FIXED else 50)
        stats = WaitStats()
        start = time.perf_counter()
        model.learn(total, callback=[keep, stats])
        seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
