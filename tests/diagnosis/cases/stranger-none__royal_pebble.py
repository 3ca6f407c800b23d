"""PPO from stable-baselines3 with an own features extractor on batched two-link arms."""
import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

torch.set_num_threads(1)
NUM_ENVS, N_STEPS, ITERATIONS = 32, 48, 18


class ArmVecEnv(VecEnv):
    """Two-link arms that have to bring the finger tip to a target; all arms advance together."""

    horizon, render_mode = 48, None

    def __init__(self, num_envs, seed):
        super().__init__(
            num_envs, gym.spaces.Box(-10, 10, (10,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)
        )
        self.rng = np.random.default_rng(seed)
        self.infos = [{} for _ in range(num_envs)]

    def reset(self):
        n = self.num_envs
        self.angle, self.speed = self.rng.uniform(-np.pi, np.pi, (n, 2)), np.zeros((n, 2))
        radius, bearing = self.rng.uniform(0.3, 1.8, n), self.rng.uniform(-np.pi, np.pi, n)
        self.target = np.stack([radius * np.cos(bearing), radius * np.sin(bearing)], axis=1)
        self.clock = 0
        return self.observe()

    def tip(self):
        total = self.angle[:, 0] + self.angle[:, 1]
        x = np.cos(self.angle[:, 0]) + np.cos(total)
        return np.stack([x, np.sin(self.angle[:, 0]) + np.sin(total)], axis=1)

    def observe(self):
        parts = (np.cos(self.angle), np.sin(self.angle), self.speed, self.target, self.target - self.tip())
        return np.concatenate(parts, axis=1).astype(np.float32)

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        self.speed = 0.8 * self.speed + 0.25 * np.clip(self.actions, -1, 1)
        self.angle = self.angle + 0.4 * self.speed
        self.clock += 1
        distance = np.linalg.norm(self.target - self.tip(), axis=1)
        reward = (-distance + 0.5 * (distance < 0.15) - 0.02 * (self.actions**2).sum(1)).astype(np.float32)
        obs, infos, done = self.observe(), self.infos, self.clock >= self.horizon
        if done:
            infos = [{"terminal_observation": row, "TimeLimit.truncated": True} for row in obs]
            obs = self.reset()
        return obs, reward, np.full(self.num_envs, done), infos

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        setattr(self, attr_name, value)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        return [getattr(self, method_name)(*args, **kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


class GatedExtractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, features_dim=128):
        super().__init__(observation_space, features_dim)
        size = observation_space.shape[0]
        self.content, self.gate = nn.Linear(size, features_dim), nn.Linear(size, features_dim)
        self.mix = nn.Sequential(nn.LayerNorm(features_dim), nn.Linear(features_dim, features_dim), nn.ReLU())

    def forward(self, obs):
        return self.mix(torch.tanh(self.content(obs)) * torch.sigmoid(self.gate(obs)))


class RewardTrace(BaseCallback):
    def _on_training_start(self):
        self.means = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.means.append(float(self.model.rollout_buffer.rewards.mean()))
        self.logger.record("arm/reward", self.means[-1])


class KeepBest(BaseCallback):
    """Stores the weights now and then, when the mean reward has gone up."""

    def __init__(self, trace, path, every=6):
        super().__init__()
        self.trace, self.path, self.every, self.best, self.count = trace, path, every, -np.inf, 0

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.count += 1
        if self.count % self.every == 0 and self.trace.means[-1] > self.best:
            self.best = self.trace.means[-1]
            torch.save(self.model.policy.state_dict(), self.path)


env = ArmVecEnv(NUM_ENVS, seed=6)
policy_kwargs = dict(
    features_extractor_class=GatedExtractor,
    net_arch=dict(pi=[96], vf=[96]),
    activation_fn=nn.ReLU,
)
model = PPO(
    "MlpPolicy", env, n_steps=N_STEPS, batch_size=512, n_epochs=8, learning_rate=6e-4, gamma=0.95,
    ent_coef=1e-3, policy_kwargs=policy_kwargs, seed=6, device="cpu",
)
trace = RewardTrace()
with tempfile.TemporaryDirectory() as folder:
    callbacks = CallbackList([trace, KeepBest(trace, os.path.join(folder, "best.pt"))])
    start = time.perf_counter()
    model.learn(ITERATIONS * NUM_ENVS * N_STEPS, callback=callbacks, log_interval=100)
    seconds = time.perf_counter() - start
print(f"reward {trace.means[0]:.3f} -> {trace.means[-1]:.3f}")
print(f"env_steps={model.num_timesteps} updates={model._n_updates * 3} seconds={seconds:.3f}")
