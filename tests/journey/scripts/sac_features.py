"""stable-baselines3's SAC on a reaching arm, with a features extractor of our own: angles as Fourier features."""

import math
import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

FIXED = os.environ.get("FIXED", "0") == "1"
FREQUENCIES = (1.0, 2.0, 4.0)


class Arm(gym.Env):
    """Two joints; bring the hand to the target."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.joints = self.np_random.uniform(-np.pi, np.pi, 2)
        self.target = self.np_random.uniform(-1, 1, 2)
        self.elapsed = 0
        return self.observe(), {}

    def observe(self):
        return np.concatenate([self.joints, self.target]).astype(np.float32)

    def step(self, action):
        self.joints = self.joints + 0.2 * np.asarray(action)
        self.elapsed += 1
        bend = self.joints.cumsum()
        hand = np.array([np.cos(bend).sum(), np.sin(bend).sum()])
        distance = float(np.linalg.norm(hand - self.target))
        return self.observe(), -distance, distance < 0.1, self.elapsed >= 50, {}


class Fourier(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=64):
        super().__init__(observation_space, features_dim)
        width = observation_space.shape[0] * 2 * len(FREQUENCIES)
        self.mix = nn.Sequential(nn.Linear(width, features_dim), nn.ReLU())
        self.register_buffer("frequencies", torch.tensor(FREQUENCIES))

    def forward(self, observations):
        if FIXED:
            angles = observations.unsqueeze(-1) * self.frequencies
            waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        else:
            waves = self.waves(observations)
        return self.mix(waves)

    def waves(self, observations):
        rows = []
        for i in range(observations.shape[0]):
            row = []
            for j in range(observations.shape[1]):
                angle = observations[i, j].item()
                for frequency in FREQUENCIES:
                    row += [math.sin(frequency * angle), math.cos(frequency * angle)]
            rows.append(row)
        return torch.tensor(rows)


def main(steps=800):
    torch.set_num_threads(1)
    begin = time.time()
    extractor = {"features_extractor_class": Fourier, "net_arch": [64, 64]}
    model = SAC("MlpPolicy", Arm(), learning_starts=200, batch_size=64, policy_kwargs=extractor, seed=1, device="cpu")
    model.learn(steps)
    print(f"env_steps={steps} updates={model._n_updates} seconds={time.time() - begin:.2f}")


if __name__ == "__main__":
    main()
