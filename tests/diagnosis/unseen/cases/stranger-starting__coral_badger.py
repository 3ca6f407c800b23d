"""Self-play with stable-baselines3: PPO learns a pile game against the latest snapshot of itself."""
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class Rival:
    """The other player: a snapshot of the learner, or random moves as long as there is none."""

    def __init__(self, path):
        self.path = path
        self.model = None
        self.stamp = None

    def prepare(self):
        if not os.path.exists(self.path):
            return
        stamp = os.stat(self.path).st_mtime_ns
        if FIXED and stamp == self.stamp:
            return
        self.model = PPO.load(self.path, device="cpu")
        self.stamp = stamp

    def move(self, obs, rng):
        if self.model is None:
            return int(rng.integers(9))
        return int(self.model.predict(obs, deterministic=False)[0])


class ThreePiles(gym.Env):
    """Three piles of stones, take one to three from a pile; whoever takes the last stone wins."""

    def __init__(self, rival):
        self.rival = rival
        self.observation_space = gym.spaces.Box(0, 1, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(9)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rival.prepare()
        self.piles = self.np_random.integers(5, 12, 3)
        if self.np_random.random() < 0.5:
            self.take(self.rival.move(self.observe(), self.np_random))
        return self.observe(), {}

    def observe(self):
        return (self.piles / 12).astype(np.float32)

    def take(self, action):
        pile, stones = action // 3, action % 3 + 1
        if self.piles[pile] == 0:
            pile = int(np.argmax(self.piles))
        self.piles[pile] -= min(stones, self.piles[pile])
        return not self.piles.any()

    def step(self, action):
        if self.take(int(action)):
            return self.observe(), 1.0, True, False, {"won": True}
        if self.take(self.rival.move(self.observe(), self.np_random)):
            return self.observe(), -1.0, True, False, {"won": False}
        return self.observe(), 0.0, False, False, {}


class Snapshots(BaseCallback):
    """Writes the learner down every few rollouts and counts the games that it wins."""

    def __init__(self, path, every):
        super().__init__()
        self.path, self.every, self.rollouts = path, every, 0
        self.games, self.won = 0, 0

    def _on_step(self):
        for info in self.locals["infos"]:
            if "won" in info:
                self.games += 1
                self.won += info["won"]
        return True

    def _on_rollout_start(self):
        if self.rollouts % self.every == 0:
            self.model.save(self.path)
        self.rollouts += 1


def main():
    set_random_seed(9)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rival.zip")
        env = ThreePiles(Rival(path))
        model = PPO(
            "MlpPolicy",
            env,
            n_steps=256,
            batch_size=64,
            n_epochs=8,
            learning_rate=5e-4,
            gamma=0.95,
            ent_coef=0.01,
            device="cpu",
            verbose=0,
        )
        snapshots = Snapshots(path, every=2)
        start = time.perf_counter()
        model.learn(total_timesteps=2048, callback=snapshots)
        seconds = time.perf_counter() - start
    print(f"won {snapshots.won} of {snapshots.games} games")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates * 4} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
