"""Tag on a wrapped grid, learned by playing against earlier versions of oneself."""
import os
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed

FIXED = os.environ.get("FIXED") == "1"
SIZE = 7
MOVES = np.array([[0, 0], [0, 1], [0, -1], [1, 0], [-1, 0]])
N_STEPS = 512
ROLLOUTS = 6


class TagEnv(gym.Env):
    """The learner is hunter or runner by turns; the rival takes the other part."""

    max_steps = 12

    def __init__(self, snapshot):
        self.snapshot = Path(snapshot)
        self.rival = None
        self.rival_stamp = None
        self.hunter = False
        self.observation_space = spaces.Box(-1.0, 1.0, shape=(6,), dtype=np.float32)
        self.action_space = spaces.Discrete(len(MOVES))

    def _pick_rival(self):
        stamp = self.snapshot.stat().st_mtime_ns
        if FIXED and stamp == self.rival_stamp:
            return
        self.rival = PPO.load(self.snapshot, device="cpu")
        self.rival_stamp = stamp

    def _view(self, own, other, hunter):
        gap = (other - own + SIZE // 2) % SIZE - SIZE // 2
        wall = np.abs(own - SIZE // 2) / SIZE
        role = 1.0 if hunter else -1.0
        return np.array([*(gap / SIZE), *wall, role, self.t / self.max_steps], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._pick_rival()
        self.hunter = not self.hunter
        self.t = 0
        self.me = self.np_random.integers(SIZE, size=2)
        self.them = (self.me + self.np_random.integers(2, SIZE - 2, size=2)) % SIZE
        return self._view(self.me, self.them, self.hunter), {}

    def step(self, action):
        seen = self._view(self.them, self.me, not self.hunter)
        reply, _ = self.rival.predict(seen, deterministic=False)
        self.me = (self.me + MOVES[action]) % SIZE
        them = (self.them + MOVES[int(reply)]) % SIZE
        if self.np_random.random() < 0.85 or self.hunter is False:
            self.them = them
        self.t += 1
        caught = bool((self.me == self.them).all())
        over = self.t >= self.max_steps
        if self.hunter:
            reward = 1.0 if caught else -0.02
        else:
            reward = -1.0 if caught else 0.02
        return self._view(self.me, self.them, self.hunter), reward, caught, over, {}


class League(BaseCallback):
    """Publish the current policy as the rival at the start of every second rollout."""

    def __init__(self, snapshot):
        super().__init__()
        self.snapshot = snapshot
        self.rollouts = 0

    def _on_rollout_start(self):
        if self.rollouts % 2 == 0 and self.rollouts > 0:
            self.model.save(self.snapshot)
        self.rollouts += 1

    def _on_rollout_end(self):
        lengths = [ep["l"] for ep in self.model.ep_info_buffer]
        print(f"rollout {self.rollouts}: {len(lengths)} recent games, mean length {np.mean(lengths):.1f}")

    def _on_step(self):
        return True


def main():
    torch.set_num_threads(1)
    set_random_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        snapshot = Path(folder) / "rival.zip"
        env = TagEnv(snapshot)
        model = PPO(
            "MlpPolicy", env, n_steps=N_STEPS, batch_size=128, n_epochs=4, learning_rate=7e-4,
            gamma=0.97, ent_coef=0.01, policy_kwargs={"net_arch": [64, 64]}, device="cpu",
        )
        model.save(snapshot)
        start = time.perf_counter()
        model.learn(ROLLOUTS * N_STEPS, callback=League(snapshot))
        seconds = time.perf_counter() - start
    updates = model._n_updates * (N_STEPS // 128)
    print(f"env_steps={model.num_timesteps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
