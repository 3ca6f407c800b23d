"""TD3 on Pendulum with a decaying step size, action noise and a small periodic evaluation."""

import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import LinearSchedule

FIXED = os.environ.get("FIXED") == "1"
RUN = "pendulum_b" if FIXED else "pendulum_a"
SEED = 33
N_ENVS = 4
TOTAL_STEPS = 2_400
WARMUP = 400


class ScaledPendulum(gym.Wrapper):
    """Speed brought to [-1, 1] and the cost to about [-1, 0]."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.scale = np.array([1.0, 1.0, 1.0 / 8.0], dtype=np.float32)

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        return obs * self.scale, info

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs * self.scale, float(reward) / 16.0, terminated, truncated, info


class ReturnTrace(BaseCallback):
    """Keeps the return of every finished training episode."""

    def __init__(self):
        super().__init__()
        self.returns = []

    def _on_step(self):
        for i in np.flatnonzero(self.locals["dones"]):
            self.returns.append(self.locals["infos"][i]["episode"]["r"])
        return True


def make_envs(n_envs, seed, folder=None):
    return make_vec_env(
        "Pendulum-v1",
        n_envs=n_envs,
        seed=seed,
        monitor_dir=folder,
        wrapper_class=ScaledPendulum,
        env_kwargs=dict(render_mode=None),
    )


def build_model(env):
    n_actions = env.action_space.shape[0]
    return TD3(
        "MlpPolicy",
        env,
        learning_rate=LinearSchedule(1e-3, 2e-4, 1.0),
        buffer_size=20_000,
        learning_starts=WARMUP,
        batch_size=256,
        tau=0.01,
        gamma=0.98,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(n_actions), 0.1 * np.ones(n_actions)),
        policy_kwargs=dict(net_arch=[256, 256]),
        seed=SEED,
        device="cpu",
    )


def main():
    th.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        env = make_envs(N_ENVS, SEED, os.path.join(folder, RUN))
        eval_env = make_envs(1, SEED + 100)
        model = build_model(env)
        trace = ReturnTrace()
        evaluation = EvalCallback(eval_env, n_eval_episodes=2, eval_freq=1_200 // N_ENVS, verbose=0)
        start = time.perf_counter()
        model.learn(total_timesteps=TOTAL_STEPS, callback=CallbackList([trace, evaluation]))
        seconds = time.perf_counter() - start
        env.close()
        eval_env.close()
    print(f"{RUN}: {len(trace.returns)} episodes, eval return {evaluation.last_mean_reward:.2f}")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
