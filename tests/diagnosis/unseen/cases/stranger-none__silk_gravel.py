"""PPO (stable-baselines3) on a VecEnv of drifting boats, with an own extractor and a callback."""
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

torch.set_num_threads(1)

BUOYS = 6


class Boats(VecEnv):
    """Many boats at once: visit the buoy that is lit, against a current."""

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.limit = 80
        super().__init__(
            count,
            gym.spaces.Box(-np.inf, np.inf, (BUOYS, 5), np.float32),
            gym.spaces.Box(-1, 1, (2,), np.float32),
        )

    def _start(self, which):
        n = len(which)
        self.pos[which] = self.rng.uniform(-1, 1, (n, 2))
        self.buoys[which] = self.rng.uniform(-1, 1, (n, BUOYS, 2))
        self.lit[which] = self.rng.integers(0, BUOYS, n)
        self.t[which] = 0

    def reset(self):
        n = self.num_envs
        self.pos, self.vel, self.t = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n, int)
        self.buoys, self.lit = np.zeros((n, BUOYS, 2)), np.zeros(n, int)
        self._start(np.arange(n))
        return self._observe()

    def _observe(self):
        obs = np.zeros((self.num_envs, BUOYS, 5), dtype=np.float32)
        obs[..., :2] = self.buoys - self.pos[:, None]
        obs[..., 2:4] = self.vel[:, None]
        obs[np.arange(self.num_envs), self.lit, 4] = 1.0
        return obs

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        rows = np.arange(self.num_envs)
        self.vel = 0.8 * self.vel + 0.05 * self.actions + 0.005 * np.sin(3 * self.pos[:, ::-1])
        self.pos = np.clip(self.pos + self.vel, -1.5, 1.5)
        distance = np.linalg.norm(self.buoys[rows, self.lit] - self.pos, axis=-1)
        hit = distance < 0.1
        self.lit[hit] = self.rng.integers(0, BUOYS, int(hit.sum()))
        self.t += 1
        rewards = (hit - 0.05 * distance).astype(np.float32)
        dones = self.t >= self.limit
        infos = [{} for _ in rows]
        if dones.any():
            last = self._observe()
            for i in np.flatnonzero(dones):
                infos[i] = {"terminal_observation": last[i], "TimeLimit.truncated": True}
            self._start(np.flatnonzero(dones))
        return self._observe(), rewards, dones, infos

    def close(self):
        pass

    def get_attr(self, name, indices=None):
        return [getattr(self, name, None)] * self.num_envs

    def set_attr(self, name, value, indices=None):
        setattr(self, name, value)

    def env_method(self, name, *args, indices=None, **kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


class BuoyExtractor(BaseFeaturesExtractor):
    def __init__(self, space, width=128):
        super().__init__(space, width)
        self.each = nn.Sequential(nn.Linear(space.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def forward(self, obs):
        return self.each(obs).amax(1)


class MeanReward(BaseCallback):
    def __init__(self):
        super().__init__()
        self.history = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.history.append(float(self.model.rollout_buffer.rewards.mean()))


def main():
    model = PPO(
        "MlpPolicy",
        Boats(64, seed=1),
        n_steps=64,
        batch_size=1024,
        n_epochs=5,
        learning_rate=1e-3,
        gamma=0.95,
        policy_kwargs=dict(features_extractor_class=BuoyExtractor, net_arch=[128, 128]),
        seed=1,
        device="cpu",
    )
    watch = MeanReward()
    start = time.perf_counter()
    model.learn(total_timesteps=64 * 64 * 7, callback=watch)
    seconds = time.perf_counter() - start
    print("mean rewards", " ".join(f"{x:.3f}" for x in watch.history))
    print(f"env_steps={model.num_timesteps} updates={model._n_updates * 4} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
