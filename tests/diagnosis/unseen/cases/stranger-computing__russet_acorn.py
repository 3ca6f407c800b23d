"""A2C for steering through traffic; the scene is a table of vehicles, encoded by attention (stable-baselines3)."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

MAX_VEHICLES = 64
N_ENVS = 8
TOTAL_STEPS = 6144


class TrafficEnv(gym.Env):
    """Ego vehicle on a wide road: keep going, hit nobody. Only vehicles in sight are listed."""

    def __init__(self):
        self.observation_space = spaces.Dict({
            "ego": spaces.Box(-10.0, 10.0, (3,), np.float32),
            "vehicles": spaces.Box(-10.0, 10.0, (MAX_VEHICLES, 4), np.float32),
            "present": spaces.Box(0.0, 1.0, (MAX_VEHICLES,), np.float32),
        })
        self.action_space = spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        n = int(self.np_random.integers(20, 40))
        self.others = np.stack([self.np_random.uniform(-2, 20, n), self.np_random.uniform(-4, 4, n),
                                self.np_random.uniform(0.2, 0.6, n), self.np_random.normal(0, 0.03, n)], axis=1)
        self.ego = np.array([0.0, 0.0, 0.7])
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        relative = self.others - np.array([self.ego[0], self.ego[1], self.ego[2], 0.0])
        near = relative[np.hypot(relative[:, 0], relative[:, 1]) < 4.0][:MAX_VEHICLES]
        table = np.zeros((MAX_VEHICLES, 4), np.float32)
        present = np.zeros(MAX_VEHICLES, np.float32)
        table[:len(near)] = near
        present[:len(near)] = 1.0
        return {"ego": self.ego.astype(np.float32) * (0.1, 1, 1), "vehicles": table, "present": present}

    def step(self, action):
        self.ego[1] = np.clip(self.ego[1] + (0.0, 0.3, -0.3, 0.0, 0.0)[int(action)], -4, 4)
        self.ego[2] = np.clip(self.ego[2] + (0.0, 0.0, 0.0, 0.1, -0.1)[int(action)], 0.1, 1.5)
        self.ego[0] += self.ego[2] * 0.5
        self.others[:, 0] += self.others[:, 2] * 0.5
        self.others[:, 1] += self.others[:, 3]
        self.t += 1
        gap = np.hypot(self.others[:, 0] - self.ego[0], self.others[:, 1] - self.ego[1]).min()
        crash = bool(gap < 0.35)
        return self._obs(), -5.0 if crash else 0.3 * self.ego[2], crash, self.t >= 60, {}


class SceneEncoder(BaseFeaturesExtractor):
    """Vehicles attend to each other, then the ego vehicle asks them."""

    def __init__(self, observation_space, width=48):
        super().__init__(observation_space, features_dim=2 * width)
        self.ego = nn.Sequential(nn.Linear(3, width), nn.ReLU())
        self.embed = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.mix = nn.MultiheadAttention(width, 4, batch_first=True)
        self.ask = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, observations):
        vehicles, present = observations["vehicles"], observations["present"]
        if FIXED:
            rows = max(1, int(present.sum(dim=1).max()))
            vehicles, present = vehicles[:, :rows], present[:, :rows]
        absent = present < 0.5
        absent = absent & ~absent.all(dim=1, keepdim=True)
        ego = self.ego(observations["ego"])
        scene = self.embed(vehicles)
        mixed, _ = self.mix(scene, scene, scene, key_padding_mask=absent)
        scene = self.norm(scene + mixed)
        answer, _ = self.ask(ego.unsqueeze(1), scene, scene, key_padding_mask=absent)
        return torch.cat([ego, answer.squeeze(1)], dim=1)


def main():
    venv = make_vec_env(TrafficEnv, n_envs=N_ENVS, seed=4)
    model = A2C("MultiInputPolicy", venv, n_steps=8, learning_rate=7e-4, gamma=0.95, ent_coef=0.01, seed=4, device="cpu",
                policy_kwargs={"features_extractor_class": SceneEncoder, "net_arch": [64]})
    start = time.perf_counter()
    model.learn(TOTAL_STEPS)
    seconds = time.perf_counter() - start
    returns = [ep["r"] for ep in model.ep_info_buffer]
    print(f"mean return {np.mean(returns):.2f} over {len(returns)} episodes")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
