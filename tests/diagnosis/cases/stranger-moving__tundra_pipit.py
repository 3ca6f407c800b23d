"""DQN with a large-margin loss on recorded demonstrations (a light DQfD) for a lidar cart."""

import os
import tempfile
import time

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor

FIXED = os.environ.get("FIXED") == "1"
SEED = 8
BEAMS = 38
TOTAL_STEPS = 4_000
SAVE_EVERY = 200
N_DEMOS = 60_000


class LidarCart(gym.Env):
    """Keep away from a ring of moving obstacles, seen through range beams."""

    def __init__(self, horizon: int = 120):
        self.horizon = horizon
        self.observation_space = spaces.Box(-2.0, 2.0, (BEAMS + 2,), np.float32)
        self.action_space = spaces.Discrete(5)
        self.moves = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]) * 0.05
        self.rays = np.linspace(0.0, 2.0 * np.pi, BEAMS, endpoint=False)

    def _obs(self):
        rel = self.rocks - self.pos
        dist = np.hypot(rel[:, 0], rel[:, 1])
        bearing = np.arctan2(rel[:, 1], rel[:, 0])
        gap = np.cos(self.rays[:, None] - bearing[None, :])
        scan = np.where(gap > 0.97, dist[None, :], 1.5).min(axis=1)
        return np.concatenate([np.minimum(scan, 1.5), self.pos]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.pos = np.zeros(2)
        angle = self.np_random.uniform(0, 2 * np.pi, 6)
        self.rocks = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        self.drift = self.np_random.normal(0.0, 0.02, (6, 2)) - 0.01 * self.rocks
        return self._obs(), {}

    def step(self, action):
        self.pos = np.clip(self.pos + self.moves[int(action)], -1.0, 1.0)
        self.rocks = self.rocks + self.drift
        self.t += 1
        nearest = float(np.hypot(*(self.rocks - self.pos).T).min())
        hit = nearest < 0.08
        reward = -5.0 if hit else min(nearest, 0.5) - 0.1 * float(np.abs(self.pos).sum())
        return self._obs(), reward, hit, self.t >= self.horizon, {}


def load_demos(env):
    """The recordings of the operator, brought into the layout of a replay buffer."""
    rng = np.random.default_rng(SEED)
    demos = ReplayBuffer(N_DEMOS, env.observation_space, env.action_space, device="cpu")
    demos.observations[:, 0] = rng.uniform(0.0, 1.5, (N_DEMOS, BEAMS + 2))
    demos.next_observations[:, 0] = rng.uniform(0.0, 1.5, (N_DEMOS, BEAMS + 2))
    demos.actions[:, 0, 0] = demos.observations[:, 0, :BEAMS].argmax(axis=1) * 5 // BEAMS
    demos.rewards[:, 0] = rng.uniform(0.0, 0.5, N_DEMOS)
    demos.full = True
    return demos


class MarginDQN(DQN):
    def __init__(self, *args, demos, margin=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.demos = demos
        self.margin = margin

    def train(self, gradient_steps, batch_size=64):
        super().train(gradient_steps, batch_size)
        batch = self.demos.sample(batch_size)
        actions = batch.actions.long()
        q = self.q_net(batch.observations)
        margins = th.full_like(q, self.margin).scatter_(1, actions, 0.0)
        loss = ((q + margins).max(dim=1).values - q.gather(1, actions).squeeze(1)).mean()
        self.policy.optimizer.zero_grad()
        loss.backward()
        self.policy.optimizer.step()
        self.logger.record("train/margin_loss", loss.item())


class LatestCheckpoint(BaseCallback):
    """Overwrites one file, so that a crashed run can be resumed."""

    def __init__(self, path, every, exclude=None):
        super().__init__()
        self.path = path
        self.every = every
        self.exclude = exclude

    def _on_step(self):
        if self.n_calls % self.every == 0:
            self.model.save(self.path, exclude=self.exclude)
        return True


def main():
    th.set_num_threads(1)
    env = Monitor(LidarCart())
    model = MarginDQN("MlpPolicy", env, demos=load_demos(env), learning_rate=5e-4, buffer_size=20_000,
                      learning_starts=200, batch_size=64, train_freq=4, target_update_interval=500,
                      exploration_fraction=0.3, seed=SEED, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        callback = LatestCheckpoint(os.path.join(folder, "latest"), SAVE_EVERY, exclude=["demos"] if FIXED else None)
        start = time.perf_counter()
        model.learn(total_timesteps=TOTAL_STEPS, callback=callback)
        seconds = time.perf_counter() - start
    print(f"mean return: {np.mean([ep['r'] for ep in model.ep_info_buffer]):.2f}")
    env.close()
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
