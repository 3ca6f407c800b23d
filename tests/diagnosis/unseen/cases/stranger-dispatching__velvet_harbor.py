"""PPO for the valves of a water network: every valve has four settings, all are set at once."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.distributions import MultiCategoricalDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

VALVES = 24
SETTINGS = 4
HORIZON = 64
N_ENVS = 8
TOTAL_STEPS = 6144


class WaterNetwork(gym.Env):
    """Tanks fed by a ring of valves; keep every tank near its wanted level."""

    def __init__(self, seed):
        self.observation_space = spaces.Box(-5.0, 5.0, (2 * VALVES,), np.float32)
        self.action_space = spaces.MultiDiscrete([SETTINGS] * VALVES)
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.level = self.rng.uniform(0.2, 0.8, VALVES)
        self.demand = self.rng.uniform(0.01, 0.05, VALVES)
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        return np.concatenate([4 * (self.level - 0.5), 40 * (self.demand - 0.03)]).astype(np.float32)

    def step(self, action):
        flow = 0.02 * np.asarray(action, dtype=np.float64)
        leak = 0.1 * (np.roll(flow, 1) + np.roll(flow, -1))
        self.level = np.clip(self.level + flow + leak - 0.2 * flow - self.demand, 0.0, 1.0)
        self.demand = np.clip(self.demand + self.rng.normal(0, 0.002, VALVES), 0.01, 0.05)
        self.t += 1
        reward = 1.0 - 4.0 * float(np.mean(np.abs(self.level - 0.5)))
        return self._obs(), reward, False, self.t >= HORIZON, {}


class SettingsDistribution(MultiCategoricalDistribution):
    """The joint distribution of all settings, kept as one (batch, valves, settings) table."""

    def proba_distribution(self, action_logits):
        table = action_logits.view(-1, len(self.action_dims), self.action_dims[0])
        self.distribution = torch.distributions.Categorical(logits=table)
        return self

    def log_prob(self, actions):
        return self.distribution.log_prob(actions).sum(dim=1)

    def entropy(self):
        return self.distribution.entropy().sum(dim=1)

    def sample(self):
        return self.distribution.sample()

    def mode(self):
        return self.distribution.logits.argmax(dim=-1)


class ValvePolicy(ActorCriticPolicy):
    def _build(self, lr_schedule):
        if FIXED:
            self.action_dist = SettingsDistribution(list(self.action_space.nvec))
        super()._build(lr_schedule)


def main():
    venv = VecMonitor(DummyVecEnv([lambda i=i: WaterNetwork(i) for i in range(N_ENVS)]))
    model = PPO(ValvePolicy, venv, n_steps=64, batch_size=128, n_epochs=8, gamma=0.95, learning_rate=2e-3,
                ent_coef=1e-3, seed=11, device="cpu", policy_kwargs={"net_arch": [128, 128]})
    start = time.perf_counter()
    model.learn(TOTAL_STEPS)
    seconds = time.perf_counter() - start
    returns = [ep["r"] for ep in model.ep_info_buffer]
    print(f"return of the last {len(returns)} episodes: {np.mean(returns):.2f}")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
