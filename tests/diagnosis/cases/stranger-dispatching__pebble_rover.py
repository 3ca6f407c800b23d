"""A rover among boulders, trained with the A2C of stable-baselines3."""
import math
import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
BOULDERS = 6


class Rover(gym.Env):
    def __init__(self, seed):
        self.observation_space = gym.spaces.Box(-10, 10, (6 + 2 * BOULDERS,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.rng = np.random.default_rng(seed)

    def reset(self, *, seed=None, options=None):
        draw = self.rng.uniform(-4, 4, (BOULDERS + 2, 2))
        self.boulders, self.goal, self.pos = draw[:BOULDERS], draw[-2], draw[-1]
        self.vel, self.t = np.zeros(2), 0
        return self.sense(), {}

    def step(self, action):
        self.drive(action)
        self.t += 1
        gx, gy = float(self.goal[0] - self.pos[0]), float(self.goal[1] - self.pos[1])
        gap = math.sqrt(gx * gx + gy * gy)
        return self.sense(), -0.1 * gap, gap < 0.3, self.t >= 150, {}

    def drive(self, action):
        self.vel = 0.9 * self.vel + 0.2 * action
        self.pos = np.minimum(np.maximum(self.pos + 0.1 * self.vel, -5.0), 5.0)

    def sense(self):
        if FIXED:
            return self.view_all()
        parts = [self.pos, self.vel, self.goal - self.pos]
        order = sorted(range(BOULDERS), key=lambda i: np.linalg.norm(self.boulders[i] - self.pos))
        for i in order:
            offset = self.boulders[i] - self.pos
            dist = np.linalg.norm(offset)
            bearing = np.arctan2(offset[1], offset[0]) - np.arctan2(self.vel[1], self.vel[0])
            parts.append(np.array([np.clip(dist, 0.0, 8.0), np.sin(bearing)]))
        return np.concatenate(parts).astype(np.float32)

    def view_all(self):
        px, py = self.pos.tolist()
        vx, vy = self.vel.tolist()
        gx, gy = self.goal.tolist()
        heading = math.atan2(vy, vx)
        seen = sorted((math.hypot(bx - px, by - py), bx - px, by - py) for bx, by in self.boulders.tolist())
        out = [px, py, vx, vy, gx - px, gy - py]
        for dist, dx, dy in seen:
            out.append(min(dist, 8.0))
            out.append(math.sin(math.atan2(dy, dx) - heading))
        return np.array(out, np.float32)


class Trace(gym.Wrapper):
    """Keeps the running mean of the return for the log line."""

    def __init__(self, env):
        super().__init__(env)
        self.total, self.mean = 0.0, 0.0

    def reset(self, **kw):
        self.total = 0.0
        return self.env.reset(**kw)

    def step(self, action):
        obs, reward, end, cut, info = self.env.step(action)
        self.total += reward
        if end or cut:
            self.mean += 0.05 * (self.total - self.mean)
        return obs, reward, end, cut, info


def main():
    torch.set_num_threads(1)
    vec = DummyVecEnv([lambda i=i: Trace(Rover(i)) for i in range(8)])
    model = A2C("MlpPolicy", vec, n_steps=16, seed=2, device="cpu", policy_kwargs={"net_arch": [128, 128]})
    start = time.perf_counter()
    model.learn(19_200)
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
