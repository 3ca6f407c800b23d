"""PPO from pictures: steer a skier past rocks and over coins, many slopes side by side."""
import time

import numpy as np
import torch
import torch.nn as nn
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv

SEED = 9
GRID, ZOOM = 12, 2
SIDE = GRID * ZOOM
N_ENVS, N_STEPS, ROLLOUTS, BATCH, EPOCHS = 32, 32, 7, 256, 4


class Slopes(VecEnv):
    """All slopes live in one array: (slope, layer, row, column) with rocks, coins and the skier."""

    def __init__(self, num_envs, seed, length=60):
        self.rng = np.random.default_rng(seed)
        self.length = length
        self.render_mode = None
        picture = spaces.Box(0, 255, shape=(3, SIDE, SIDE), dtype=np.uint8)
        super().__init__(num_envs, picture, spaces.Discrete(3))
        self.index = np.arange(num_envs)

    def _fresh_rows(self, count):
        draws = self.rng.random((count, GRID))
        return draws < 0.10, draws > 0.93

    def _restart(self, which):
        self.things[which] = False
        self.skier[which] = GRID // 2
        self.t[which] = self.rng.integers(0, self.length // 3, size=len(which))
        self.gained[which] = 0.0

    def _pictures(self):
        layers = np.zeros((self.num_envs, 3, GRID, GRID), dtype=np.uint8)
        layers[:, :2] = self.things * np.uint8(255)
        layers[self.index, 2, GRID - 1, self.skier] = 255
        return layers.repeat(ZOOM, axis=2).repeat(ZOOM, axis=3)

    def reset(self):
        self.things = np.zeros((self.num_envs, 2, GRID, GRID), dtype=bool)
        self.skier = np.zeros(self.num_envs, dtype=np.int64)
        self.t = np.zeros(self.num_envs, dtype=np.int64)
        self.gained = np.zeros(self.num_envs)
        self._restart(self.index)
        return self._pictures()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        self.skier = np.clip(self.skier + self.actions - 1, 0, GRID - 1)
        self.things[:, :, 1:] = self.things[:, :, :-1].copy()
        self.things[:, 0, 0], self.things[:, 1, 0] = self._fresh_rows(self.num_envs)
        crash = self.things[self.index, 0, GRID - 1, self.skier]
        coin = self.things[self.index, 1, GRID - 1, self.skier]
        reward = (1.0 * coin - 1.0 * crash + 0.01).astype(np.float32)
        self.t += 1
        self.gained += reward
        over = self.t >= self.length
        infos = [{} for _ in range(self.num_envs)]
        ended = np.flatnonzero(over)
        pictures = self._pictures()
        if len(ended):
            for i in ended:
                infos[i] = {
                    "terminal_observation": pictures[i], "TimeLimit.truncated": False,
                    "episode": {"r": float(self.gained[i]), "l": int(self.t[i]), "t": 0.0},
                }
            self._restart(ended)
            pictures = self._pictures()
        return pictures, reward, over, infos

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        setattr(self, attr_name, value)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


class SmallEye(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=128):
        super().__init__(observation_space, features_dim)
        self.net = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(64 * 25, features_dim), nn.ReLU(),
        )

    def forward(self, pictures):
        return self.net(pictures)


class Report(BaseCallback):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        returns = [ep["r"] for ep in self.model.ep_info_buffer]
        print(f"steps={self.num_timesteps} mean return={np.mean(returns) if returns else float('nan'):.2f}")


def main():
    torch.set_num_threads(1)
    model = PPO(
        "CnnPolicy", Slopes(N_ENVS, SEED), n_steps=N_STEPS, batch_size=BATCH, n_epochs=EPOCHS, learning_rate=5e-4,
        gamma=0.95, ent_coef=0.01, seed=SEED, device="cpu",
        policy_kwargs={"features_extractor_class": SmallEye, "net_arch": []},
    )
    start = time.perf_counter()
    model.learn(ROLLOUTS * N_STEPS * N_ENVS, callback=Report())
    seconds = time.perf_counter() - start
    updates = model._n_updates * (N_STEPS * N_ENVS // BATCH)
    print(f"env_steps={model.num_timesteps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
