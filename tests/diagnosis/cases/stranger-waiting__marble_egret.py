"""PPO tuning six thermal test rigs side by side (hardware-in-the-loop style)."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
SEED = 17
N_RIGS = 6
N_STEPS = 125
ROLLOUTS = 4
REPLY_TIME = 0.0015


class Controller:
    """Stand-in for the serial link: a command is acknowledged after the reply time of the firmware."""

    def __init__(self):
        self.plate = 0.2
        self.core = 0.2

    def exchange(self, heater, fan):
        time.sleep(REPLY_TIME)
        self.plate += 0.08 * heater - (0.02 + 0.05 * fan) * self.plate
        self.core += 0.1 * (self.plate - self.core)
        return self.plate, self.core


class ThermalRig(gym.Env):
    """Follow a temperature profile with the core sensor."""

    def __init__(self, horizon: int = 100):
        self.horizon = horizon
        self.observation_space = spaces.Box(-5.0, 5.0, (5,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _profile(self):
        return 0.5 + 0.3 * np.sin(self.phase + 0.06 * self.t)

    def _obs(self, plate, core):
        want = self._profile()
        return np.array([plate, core, want, want - core, self.t / self.horizon], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.phase = float(self.np_random.uniform(0.0, 2.0 * np.pi))
        self.link = Controller()
        return self._obs(*self.link.exchange(0.0, 0.0)), {}

    def step(self, action):
        heater, fan = (0.5 + 0.5 * np.clip(action, -1.0, 1.0)).tolist()
        plate, core = self.link.exchange(heater, fan)
        core += float(self.np_random.normal(0.0, 0.002))
        self.t += 1
        reward = -abs(core - self._profile()) - 0.01 * heater
        return self._obs(plate, core), reward, False, self.t >= self.horizon, {}


class ThreadedVecEnv(DummyVecEnv):
    """DummyVecEnv whose environments are advanced by a pool of threads."""

    def __init__(self, env_fns):
        super().__init__(env_fns)
        self.pool = ThreadPoolExecutor(max_workers=self.num_envs, thread_name_prefix="rig")

    def _advance(self, idx):
        env = self.envs[idx]
        obs, reward, terminated, truncated, info = env.step(self.actions[idx])
        info["TimeLimit.truncated"] = truncated and not terminated
        if terminated or truncated:
            info["terminal_observation"] = obs
            obs, self.reset_infos[idx] = env.reset()
        return obs, reward, terminated or truncated, info

    def step_wait(self):
        jobs = (self.pool.submit(self._advance, i) for i in range(self.num_envs))
        if FIXED:
            jobs = list(jobs)
        for i, job in enumerate(jobs):
            obs, self.buf_rews[i], self.buf_dones[i], self.buf_infos[i] = job.result()
            self._save_obs(i, obs)
        return self._obs_from_buf(), np.copy(self.buf_rews), np.copy(self.buf_dones), deepcopy(self.buf_infos)

    def close(self):
        super().close()
        self.pool.shutdown()


def main():
    th.set_num_threads(1)
    env = make_vec_env(ThermalRig, n_envs=N_RIGS, seed=SEED, vec_env_cls=ThreadedVecEnv)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=N_STEPS,
        batch_size=75,
        n_epochs=10,
        gamma=0.97,
        learning_rate=3e-4,
        seed=SEED,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(total_timesteps=ROLLOUTS * N_STEPS * N_RIGS)
    seconds = time.perf_counter() - start
    print(f"mean return: {np.mean([ep['r'] for ep in model.ep_info_buffer]):.2f}")
    n, m = model.num_timesteps, model._n_updates
    env.close()
    print(f"env_steps={n} updates={m} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
