"""PPO holding the levels and temperatures of a chain of tanks at their set points."""

import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

FIXED = os.environ.get("FIXED") == "1"
SEED = 3
TANKS = 6
N_ENVS = 4
N_STEPS = 256
ITERATIONS = 10
CHANNELS = [f"{kind}_{i}" for i in range(TANKS) for kind in ("level", "temp", "flow")]


class TankPlant(gym.Env):
    """Tanks in series; one valve per tank, heat is carried along with the flow."""

    def __init__(self, horizon: int = 200):
        self.horizon = horizon
        self.observation_space = spaces.Dict(
            {name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in CHANNELS}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (TANKS,), np.float32)
        self.target = np.linspace(0.4, 0.6, TANKS)

    def _observe(self):
        flat = np.stack([self.level, self.temp, self.flow], axis=1).astype(np.float32).ravel()
        return {name: flat[i : i + 1] for i, name in enumerate(CHANNELS)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.level = self.np_random.uniform(0.2, 0.8, TANKS)
        self.temp = self.np_random.uniform(0.3, 0.7, TANKS)
        self.flow = np.zeros(TANKS)
        return self._observe(), {}

    def step(self, action):
        valve = 0.5 + 0.5 * np.clip(action, -1.0, 1.0)
        self.flow = 0.1 * valve * np.sqrt(np.maximum(self.level, 0.0))
        inflow = np.concatenate([[0.05], self.flow[:-1]])
        feed = np.concatenate([[0.5], self.temp[:-1]])
        noise = self.np_random.normal(0.0, 0.004, TANKS)
        self.temp = self.temp + inflow * (feed - self.temp) + noise
        self.level = np.clip(self.level + inflow - self.flow, 0.0, 1.0)
        self.t += 1
        error = np.abs(self.level - self.target).mean() + 0.2 * np.abs(self.temp - 0.5).mean()
        return self._observe(), -float(error), False, self.t >= self.horizon, {}


def build_env():
    wrapper = FlattenObservation if FIXED else None
    env = make_vec_env(TankPlant, n_envs=N_ENVS, seed=SEED, wrapper_class=wrapper)
    return VecNormalize(env, gamma=0.98)


def build_model(env):
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return PPO(
        policy,
        env,
        learning_rate=lambda progress: 3e-4 * progress + 1e-5,
        n_steps=N_STEPS,
        batch_size=128,
        n_epochs=4,
        gamma=0.98,
        gae_lambda=0.95,
        policy_kwargs=dict(net_arch=dict(pi=[64, 64], vf=[64, 64])),
        seed=SEED,
        device="cpu",
    )


def main():
    th.set_num_threads(1)
    env = build_env()
    model = build_model(env)
    start = time.perf_counter()
    model.learn(total_timesteps=ITERATIONS * N_STEPS * N_ENVS)
    seconds = time.perf_counter() - start
    returns = [ep["r"] for ep in model.ep_info_buffer]
    print(f"mean return over the last {len(returns)} episodes: {np.mean(returns):.2f}")
    env.close()
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
