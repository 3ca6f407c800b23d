"""DQN with hindsight goals: five carts have to be brought into a wanted formation."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, HerReplayBuffer
from stable_baselines3.common.monitor import Monitor

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

CARTS = 5
REACH = 0.2
HORIZON = 30
TOTAL_STEPS = 1500
STEP = np.array([(0.1, 0.0), (-0.1, 0.0), (0.0, 0.1), (0.0, -0.1)])


class FormationEnv(gym.Env):
    """Every action moves one cart by one step; the reward is minus the share of carts out of place."""

    def __init__(self, seed):
        box = spaces.Box(-2.0, 2.0, (2 * CARTS,), np.float32)
        self.observation_space = spaces.Dict({
            "observation": spaces.Box(-2.0, 2.0, (2 * CARTS + 1,), np.float32),
            "achieved_goal": box,
            "desired_goal": box,
        })
        self.action_space = spaces.Discrete(CARTS * len(STEP))
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        self.carts = self.rng.uniform(-0.5, 0.5, (CARTS, 2))
        self.goal = np.clip(self.carts + self.rng.uniform(-0.3, 0.3, (CARTS, 2)), -1, 1).astype(np.float32).ravel()
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        flat = self.carts.astype(np.float32).ravel()
        return {"observation": np.append(flat, np.float32(self.t / HORIZON)), "achieved_goal": flat,
                "desired_goal": self.goal}

    def compute_reward(self, achieved_goal, desired_goal, info):
        if FIXED:
            gap = (achieved_goal - desired_goal).reshape(*achieved_goal.shape[:-1], CARTS, 2)
            misplaced = np.hypot(gap[..., 0], gap[..., 1]) > REACH
            return -misplaced.mean(axis=-1)
        if achieved_goal.ndim == 1:
            return self._score(achieved_goal, desired_goal)
        return np.array([self._score(a, g) for a, g in zip(achieved_goal, desired_goal)])

    def _score(self, achieved, desired):
        misplaced = 0
        for k in range(CARTS):
            dx = achieved[2 * k] - desired[2 * k]
            dy = achieved[2 * k + 1] - desired[2 * k + 1]
            if np.hypot(dx, dy) > REACH:
                misplaced += 1
        return -misplaced / CARTS

    def step(self, action):
        cart, direction = divmod(int(action), len(STEP))
        self.carts[cart] = np.clip(self.carts[cart] + STEP[direction], -1.0, 1.0)
        self.t += 1
        obs = self._obs()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], {}))
        return obs, reward, reward == 0.0, self.t >= HORIZON, {"is_success": reward == 0.0}


def main():
    env = Monitor(FormationEnv(seed=8))
    model = DQN(
        "MultiInputPolicy", env, learning_rate=1e-3, buffer_size=20_000, learning_starts=100, batch_size=256,
        train_freq=1, gradient_steps=1, gamma=0.93, exploration_fraction=0.3, target_update_interval=200,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        policy_kwargs={"net_arch": [128, 128]}, seed=8, device="cpu",
    )
    start = time.perf_counter()
    model.learn(TOTAL_STEPS)
    seconds = time.perf_counter() - start
    returns = [ep["r"] for ep in model.ep_info_buffer]
    print(f"episodes {len(returns)}  first returns {np.mean(returns[:10]):.2f}  last returns {np.mean(returns[-10:]):.2f}")
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
