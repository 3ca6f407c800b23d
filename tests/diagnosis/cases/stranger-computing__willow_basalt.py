"""PPO from pixels on top of a ready-made image encoder (only the heads are trained)."""

import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnvWrapper
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
SEED = 21
SIZE = 48
N_ENVS = 4
N_STEPS = 128
ROLLOUTS = 6


class ChaseEnv(gym.Env):
    """A paddle-less Catch: steer a block under a drifting target."""

    def __init__(self, horizon: int = 64):
        self.horizon = horizon
        self.observation_space = spaces.Box(0, 255, (3, SIZE, SIZE), np.uint8)
        self.action_space = spaces.Discrete(3)

    def _draw(self):
        img = np.zeros((3, SIZE, SIZE), np.uint8)
        tx, ax = int(self.target), int(self.agent)
        img[0, 4:10, max(tx - 3, 0) : tx + 3] = 255
        img[1, SIZE - 8 : SIZE - 4, max(ax - 4, 0) : ax + 4] = 255
        img[2, :, ::8] = 40
        return img

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.target, self.agent = self.np_random.uniform(4, SIZE - 4, 2)
        self.drift = self.np_random.choice([-1.0, 1.0])
        return self._draw(), {}

    def step(self, action):
        self.agent = float(np.clip(self.agent + 2.0 * (int(action) - 1), 4, SIZE - 4))
        self.target += self.drift
        if not 4 < self.target < SIZE - 4:
            self.drift = -self.drift
        self.t += 1
        reward = 1.0 - abs(self.target - self.agent) / SIZE
        return self._draw(), reward, False, self.t >= self.horizon, {}


class Encoder(nn.Module):
    """Convolutional trunk; the weights come from a self-supervised stage and stay as they are."""

    def __init__(self, out_dim: int = 64):
        super().__init__()
        self.out_dim = out_dim
        self.conv = nn.Sequential(
            nn.Conv2d(3, 32, 5, stride=2), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(64 * 8 * 8, out_dim), nn.Tanh())

    def forward(self, x):
        return self.head(self.conv(x))


def load_encoder():
    th.manual_seed(5)
    return Encoder().eval().requires_grad_(False)


class EncoderFeatures(BaseFeaturesExtractor):
    def __init__(self, observation_space, encoder):
        super().__init__(observation_space, features_dim=encoder.out_dim)
        self.encoder = encoder

    def forward(self, obs):
        return self.encoder(obs)


class EncodedVecEnv(VecEnvWrapper):
    def __init__(self, venv, encoder):
        super().__init__(venv, observation_space=spaces.Box(-1.0, 1.0, (encoder.out_dim,), np.float32))
        self.encoder = encoder

    def _encode(self, images):
        with th.no_grad():
            return self.encoder(th.as_tensor(images).float() / 255.0).numpy()

    def reset(self):
        return self._encode(self.venv.reset())

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for i in np.flatnonzero(dones):
            infos[i]["terminal_observation"] = self._encode(infos[i]["terminal_observation"][None])[0]
        return self._encode(obs), rewards, dones, infos


def build():
    env = make_vec_env(ChaseEnv, n_envs=N_ENVS, seed=SEED)
    encoder = load_encoder()
    policy_kwargs = dict(net_arch=dict(pi=[64], vf=[64]), ortho_init=False)
    if FIXED:
        env = EncodedVecEnv(env, encoder)
    else:
        policy_kwargs.update(features_extractor_class=EncoderFeatures, features_extractor_kwargs=dict(encoder=encoder))
    model = PPO("MlpPolicy", env, n_steps=N_STEPS, batch_size=64, n_epochs=4, learning_rate=5e-4,
                policy_kwargs=policy_kwargs, seed=SEED, device="cpu")
    return env, model


def main():
    th.set_num_threads(1)
    env, model = build()
    start = time.perf_counter()
    model.learn(total_timesteps=ROLLOUTS * N_STEPS * N_ENVS)
    seconds = time.perf_counter() - start
    print(f"mean return: {np.mean([ep['r'] for ep in model.ep_info_buffer]):.2f}")
    env.close()
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
