"""SAC + hindsight replay on a planar three-link arm (goal-conditioned reaching)."""

import os
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.her import HerReplayBuffer

FIXED = os.environ.get("FIXED") == "1"
SEED = 11
N_ENVS = 2
TOTAL_STEPS = 1_100
LINKS = np.array([0.5, 0.35, 0.25], dtype=np.float32)
DT = 0.05


class ReachEnv(gym.Env):
    """Move the tip of the arm onto a random target, sparse reward."""

    def __init__(self, horizon: int = 50, tol: float = 0.08):
        self.horizon = horizon
        self.tol = tol
        n = len(LINKS)
        box = lambda k: spaces.Box(-np.inf, np.inf, (k,), np.float32)  # noqa: E731
        self.observation_space = spaces.Dict(
            {"observation": box(2 * n), "achieved_goal": box(2), "desired_goal": box(2)}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (n,), np.float32)

    def _joint_positions(self):
        angles = np.cumsum(self.q)
        xs = np.cumsum(LINKS * np.cos(angles))
        ys = np.cumsum(LINKS * np.sin(angles))
        return np.stack([xs, ys], axis=1).astype(np.float32)

    def _obs(self):
        return {
            "observation": np.concatenate([self.q, self.qd]).astype(np.float32),
            "achieved_goal": self.points[-1].copy(),
            "desired_goal": self.goal.copy(),
        }

    def compute_reward(self, achieved_goal, desired_goal, info):
        dist = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return -(dist > self.tol).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.q = self.np_random.uniform(-0.4, 0.4, len(LINKS))
        self.qd = np.zeros(len(LINKS))
        radius = self.np_random.uniform(0.4, 1.0)
        phi = self.np_random.uniform(-np.pi / 2, np.pi / 2)
        self.goal = np.array([radius * np.cos(phi), radius * np.sin(phi)], dtype=np.float32)
        self.points = self._joint_positions()
        self.effort = 0.0
        return self._obs(), {}

    def step(self, action):
        torque = np.clip(action, -1.0, 1.0).astype(np.float64)
        self.qd = 0.9 * self.qd + 4.0 * DT * torque
        self.q = np.clip(self.q + DT * self.qd * 5.0, -2.5, 2.5)
        self.points = self._joint_positions()
        self.effort += float(np.square(torque).sum())
        self.t += 1
        obs = self._obs()
        dist = float(np.linalg.norm(obs["achieved_goal"] - self.goal))
        info = {
            "is_success": dist <= self.tol,
            "distance": dist,
            "joints": self.q.copy(),
            "velocity": self.qd.copy(),
            "torque": torque,
            "tip": self.points[-1].copy(),
            "skeleton": [(float(x), float(y)) for x, y in self.points],
            "limits": [bool(abs(a) >= 2.5) for a in self.q],
            "cost": {"reach": dist, "effort": self.effort, "time": self.t * DT},
            "clock": self.t * DT,
        }
        reward = float(self.compute_reward(obs["achieved_goal"], self.goal, info))
        return obs, reward, False, self.t >= self.horizon, info


def build_agent(env):
    return SAC(
        "MultiInputPolicy",
        env,
        learning_rate=1e-3,
        buffer_size=20_000,
        learning_starts=200,
        batch_size=256,
        gamma=0.95,
        tau=0.02,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs=dict(
            n_sampled_goal=4,
            goal_selection_strategy="future",
            copy_info_dict=not FIXED,
        ),
        policy_kwargs=dict(net_arch=[64, 64]),
        seed=SEED,
        device="cpu",
    )


def main():
    th.set_num_threads(1)
    env = make_vec_env(ReachEnv, n_envs=N_ENVS, seed=SEED)
    model = build_agent(env)
    start = time.perf_counter()
    model.learn(total_timesteps=TOTAL_STEPS, log_interval=10)
    seconds = time.perf_counter() - start
    if model.ep_success_buffer:
        print(f"success rate: {np.mean(model.ep_success_buffer):.2f}")
    n, m = model.num_timesteps, model._n_updates
    env.close()
    print(f"env_steps={n} updates={m} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
