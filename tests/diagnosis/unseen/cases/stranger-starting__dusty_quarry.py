"""Self-play on a small capture game: PPO against earlier versions of itself."""
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
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.utils import set_random_seed

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SIZE = 5
MAX_TURNS = 10
TOTAL_STEPS = 2560
MOVES = np.array([(0, 1), (1, 0), (0, -1), (-1, 0), (0, 0)])


class League:
    """Snapshots of the learner on disk, newest ones preferred."""

    def __init__(self, folder, seed):
        self.folder = Path(folder)
        self.rng = np.random.default_rng(seed)
        self.members = []
        self.loaded = {}

    def add(self, model):
        path = self.folder / f"member_{len(self.members):03d}.zip"
        model.save(path)
        self.members.append(path)

    def opponent(self):
        if not self.members:
            return None
        recent = self.members[-4:]
        path = recent[self.rng.integers(len(recent))]
        if FIXED:
            if path not in self.loaded:
                self.loaded[path] = PPO.load(path, device="cpu")
            return self.loaded[path]
        return PPO.load(path, device="cpu")


class CaptureGame(gym.Env):
    """Two players on a board race for a flag; whoever gets there first wins."""

    def __init__(self, league, seed):
        self.observation_space = spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.action_space = spaces.Discrete(len(MOVES))
        self.league = league
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.rival = self.league.opponent()
        self.spots = self.rng.integers(0, SIZE, (2, 2))
        self.flag = self.rng.integers(0, SIZE, 2)
        self.turn = 0
        return self._view(0), {}

    def _view(self, who):
        me, other = self.spots[who], self.spots[1 - who]
        return (np.concatenate([self.flag - me, self.flag - other, me - other]) / SIZE).astype(np.float32)

    def _move(self, who, action):
        target = np.clip(self.spots[who] + MOVES[action], 0, SIZE - 1)
        if not np.array_equal(target, self.spots[1 - who]):
            self.spots[who] = target
        return np.array_equal(self.spots[who], self.flag)

    def step(self, action):
        self.turn += 1
        if self._move(0, int(action)):
            return self._view(0), 1.0, True, False, {}
        if self.rival is None:
            reply = int(self.rng.integers(len(MOVES)))
        else:
            reply = int(self.rival.predict(self._view(1), deterministic=True)[0])
        lost = self._move(1, reply)
        return self._view(0), -1.0 if lost else -0.02, lost, self.turn >= MAX_TURNS, {}


class LeagueCallback(BaseCallback):
    def __init__(self, league):
        super().__init__()
        self.league = league

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.league.add(self.model)
        recent = [ep["r"] for ep in self.model.ep_info_buffer]
        print(f"member {len(self.league.members):2d}: mean return {np.mean(recent):+.2f}")


def main():
    set_random_seed(5)
    with tempfile.TemporaryDirectory() as folder:
        league = League(folder, seed=1)
        env = Monitor(CaptureGame(league, seed=2))
        model = PPO("MlpPolicy", env, n_steps=256, batch_size=64, n_epochs=4, gamma=0.95, ent_coef=0.01,
                    learning_rate=1e-3, device="cpu", policy_kwargs={"net_arch": [64, 64]})
        start = time.perf_counter()
        model.learn(TOTAL_STEPS, callback=LeagueCallback(league))
        seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
