"""PPO landing a glider; after every rollout the policy is scored on held-out wind scenarios."""

import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import SubprocVecEnv

FIXED = os.environ.get("FIXED") == "1"
SEED = 41
SCENARIO_SEED = 9_000
N_SCENARIOS = 6
N_ENVS = 4
N_STEPS = 32
ROLLOUTS = 60


class GliderEnv(gym.Env):
    """Steer through gusts so that the touch-down is close to the marker."""

    def __init__(self, horizon: int = 25):
        self.horizon = horizon
        self.observation_space = spaces.Box(-10.0, 10.0, (6,), np.float32)
        self.action_space = spaces.Discrete(5)

    def _obs(self):
        return np.array([self.x, self.vx, self.h, self.vh, self.wind, self.t / self.horizon], dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.x = float(self.np_random.uniform(-2.0, 2.0))
        self.h = 1.0
        self.vx = self.vh = 0.0
        self.wind = float(self.np_random.normal(0.0, 0.3))
        return self._obs(), {}

    def step(self, action):
        tilt = (int(action) - 2) * 0.5
        self.wind = 0.9 * self.wind + float(self.np_random.normal(0.0, 0.1))
        self.vx = 0.8 * self.vx + 0.2 * tilt + 0.1 * self.wind
        self.vh = -1.0 / self.horizon - 0.01 * abs(tilt)
        self.x += self.vx
        self.h = max(self.h + self.vh, 0.0)
        self.t += 1
        done = self.t >= self.horizon
        reward = -0.02 * abs(self.x) - (abs(self.x) if done else 0.0)
        return self._obs(), reward, done, False, {}


def make_scenarios():
    return make_vec_env(
        GliderEnv,
        n_envs=N_SCENARIOS,
        seed=SCENARIO_SEED,
        vec_env_cls=SubprocVecEnv,
        vec_env_kwargs=dict(start_method="fork"),
    )


class ScenarioScore(BaseCallback):
    """Deterministic score on the same scenarios each time; remembers the best weights."""

    def __init__(self, env=None):
        super().__init__()
        self.env = env
        self.scores = []
        self.best = -np.inf
        self.best_weights = None

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        env = make_scenarios() if self.env is None else self.env
        env.seed(SCENARIO_SEED)
        mean, _ = evaluate_policy(self.model, env, n_eval_episodes=N_SCENARIOS, deterministic=True)
        if env is not self.env:
            env.close()
        self.scores.append(mean)
        self.logger.record("eval/scenario_score", mean)
        if mean > self.best:
            self.best = mean
            self.best_weights = {k: v.clone() for k, v in self.model.policy.state_dict().items()}


def main():
    th.set_num_threads(1)
    env = make_vec_env(GliderEnv, n_envs=N_ENVS, seed=SEED)
    score = ScenarioScore(make_scenarios() if FIXED else None)
    model = PPO(
        "MlpPolicy",
        env,
        learning_rate=LinearSchedule(1e-3, 1e-4, 1.0),
        n_steps=N_STEPS,
        batch_size=64,
        n_epochs=4,
        gamma=0.99,
        seed=SEED,
        device="cpu",
    )
    start = time.perf_counter()
    model.learn(total_timesteps=ROLLOUTS * N_STEPS * N_ENVS, callback=score)
    seconds = time.perf_counter() - start
    print(f"best scenario score: {score.best:.3f} (last {score.scores[-1]:.3f})")
    if score.env is not None:
        score.env.close()
    env.close()
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
