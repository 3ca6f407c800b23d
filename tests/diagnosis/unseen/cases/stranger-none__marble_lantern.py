"""PPO on a fleet of simulated drones; the simulation is a VecEnv of its own (stable-baselines3)."""
import time

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

torch.set_num_threads(1)

N_ENVS = 128
HORIZON = 100
TOTAL_STEPS = 32_768


class DroneFleet(VecEnv):
    """All drones in numpy arrays: fly to a waypoint and hover there."""

    def __init__(self, num_envs, seed):
        observation_space = spaces.Box(-np.inf, np.inf, (12,), np.float32)
        action_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        super().__init__(num_envs, observation_space, action_space)
        self.rng = np.random.default_rng(seed)
        self.position = np.zeros((num_envs, 3), np.float32)
        self.velocity = np.zeros((num_envs, 3), np.float32)
        self.waypoint = np.zeros((num_envs, 3), np.float32)
        self.wind = np.zeros((num_envs, 3), np.float32)
        self.age = np.zeros(num_envs, np.int64)
        self.score = np.zeros(num_envs)
        self.scores = []

    def _respawn(self, which):
        n = len(which)
        self.position[which] = self.rng.uniform(-1, 1, (n, 3))
        self.velocity[which] = 0.0
        self.waypoint[which] = self.rng.uniform(-1, 1, (n, 3))
        self.wind[which] = self.rng.normal(0, 0.01, (n, 3))
        self.age[which] = 0
        self.score[which] = 0.0

    def _observe(self):
        return np.concatenate([self.waypoint - self.position, self.velocity, self.position, self.wind * 10], axis=1)

    def reset(self):
        self._respawn(np.arange(self.num_envs))
        return self._observe()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        self.velocity = 0.92 * self.velocity + 0.06 * self.actions + self.wind
        self.position += self.velocity
        distance = np.linalg.norm(self.waypoint - self.position, axis=1)
        rewards = (0.3 - 0.3 * distance - 0.02 * np.square(self.actions).sum(axis=1)).astype(np.float32)
        self.age += 1
        self.score += rewards
        lost = distance > 4.0
        done = lost | (self.age >= HORIZON)
        infos = [{} for _ in range(self.num_envs)]
        if done.any():
            which = np.flatnonzero(done)
            last = self._observe()
            for i in which:
                infos[i] = {"terminal_observation": last[i], "TimeLimit.truncated": not lost[i]}
            self.scores.extend(self.score[which])
            self._respawn(which)
        return self._observe(), rewards, done, infos

    def close(self):
        pass

    def get_attr(self, attr_name, indices=None):
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        setattr(self, attr_name, value)

    def env_method(self, method_name, *args, indices=None, **kwargs):
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


class Progress(BaseCallback):
    def _on_step(self):
        return True

    def _on_rollout_end(self):
        scores = self.training_env.scores[-N_ENVS:]
        if scores:
            print(f"steps {self.num_timesteps:6d}  mean score {np.mean(scores):.2f}")


def main():
    fleet = DroneFleet(N_ENVS, seed=6)
    model = PPO("MlpPolicy", fleet, n_steps=64, batch_size=2048, n_epochs=8, learning_rate=1e-3, gamma=0.97, seed=6,
                device="cpu", policy_kwargs={"net_arch": [256, 256], "activation_fn": torch.nn.ReLU})
    start = time.perf_counter()
    model.learn(TOTAL_STEPS, callback=Progress())
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
