"""PPO of stable-baselines3 on generated mazes with a small level curriculum."""
import gc
import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"


class Level:
    def __init__(self, rng, hardness, side=9):
        self.walls = rng.random((side, side)) < 0.05 + 0.2 * hardness
        self.start, self.goal = (int(rng.integers(side)), 0), (int(rng.integers(side)), 2 + int(hardness * (side - 3)))
        self.walls[self.start] = self.walls[self.goal] = False
        self.tries, self.wins = 0, 0


class Maze(gym.Env):
    def __init__(self, seed):
        self.observation_space = gym.spaces.Box(-1, 1, (85,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
        self.level = Level(np.random.default_rng(seed), 0.0)

    def observe(self):
        place = np.array([self.y, self.x, *self.level.goal], np.float32) / 9
        return np.concatenate([self.level.walls.ravel(), place], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        (self.y, self.x), self.t = self.level.start, 0
        return self.observe(), {}

    def step(self, action):
        dy, dx = ((0, 1), (1, 0), (0, -1), (-1, 0))[int(action)]
        y, x = min(max(self.y + dy, 0), 8), min(max(self.x + dx, 0), 8)
        if not self.level.walls[y, x]:
            self.y, self.x = y, x
        self.t += 1
        won = (self.y, self.x) == self.level.goal
        return self.observe(), 1.0 if won else -0.01, won, self.t >= 60, {}


class Curriculum(gym.Wrapper):
    """Keeps an archive of levels and offers the ones that are neither too easy nor too hard."""

    def __init__(self, env, seed, keep=8):
        super().__init__(env)
        self.rng, self.hardness = np.random.default_rng(seed), 0.0
        self.archive, self.keep = [env.level], keep

    def offer(self):
        if self.rng.random() < 0.5 or len(self.archive) < 8:
            level = Level(self.rng, self.hardness)
            self.archive.append(level)
            if len(self.archive) > self.keep:
                self.retire()
            return level
        picks = self.rng.integers(len(self.archive), size=4)
        return min((self.archive[i] for i in picks), key=lambda v: abs(v.wins - 0.5 * v.tries))

    def retire(self):
        self.archive.sort(key=lambda v: v.wins / max(v.tries, 1))
        del self.archive[self.keep // 2:]
        if not FIXED:
            gc.collect()

    def reset(self, **kw):
        self.env.level = self.offer()
        self.env.level.tries += 1
        return self.env.reset(**kw)

    def step(self, action):
        obs, reward, won, cut, info = self.env.step(action)
        self.env.level.wins += won
        return obs, reward, won, cut, info


class Harder(BaseCallback):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        for env in self.training_env.envs:
            tries = sum(v.tries for v in env.archive)
            if sum(v.wins for v in env.archive) > 0.6 * tries:
                env.hardness = min(1.0, env.hardness + 0.05)


def main():
    torch.set_num_threads(1)
    vec = DummyVecEnv([lambda i=i: Curriculum(Maze(i), i) for i in range(4)])
    model = PPO("MlpPolicy", vec, n_steps=128, batch_size=128, n_epochs=6, seed=1, device="cpu", policy_kwargs={"net_arch": [128, 128]})
    start = time.perf_counter()
    model.learn(5120, callback=Harder())
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
