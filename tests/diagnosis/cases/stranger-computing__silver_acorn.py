"""PPO (stable-baselines3) in random mazes; a potential that knows the walls shapes the sparse reward."""
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SIZE = 13
MOVES = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)])
TOTAL_STEPS = 12288


class RandomMaze(gym.Env):
    """Every episode has its own walls, start and goal; the agent sees the 5x5 cells around it and the way to the goal."""

    metadata = {"render_modes": []}

    def __init__(self, limit=60):
        self.limit = limit
        self.action_space = spaces.Discrete(4)
        self.observation_space = spaces.Box(-1.0, 1.0, (27,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.walls = np.ones((SIZE + 4, SIZE + 4), bool)
        self.walls[2:-2, 2:-2] = self.np_random.random((SIZE, SIZE)) < 0.22
        free = np.argwhere(~self.walls)
        self.pos, self.goal = free[self.np_random.choice(len(free), 2, replace=False)]
        self.t = 0
        return self._obs(), {}

    def _obs(self):
        r, c = self.pos
        patch = self.walls[r - 2:r + 3, c - 2:c + 3].ravel()
        return np.concatenate([patch, (self.goal - self.pos) / SIZE]).astype(np.float32)

    def step(self, action):
        self.t += 1
        ahead = self.pos + MOVES[action]
        if not self.walls[tuple(ahead)]:
            self.pos = ahead
        reached = bool((self.pos == self.goal).all())
        return self._obs(), 1.0 if reached else -0.01, reached, self.t >= self.limit, {}


class MazePotential(gym.Wrapper):
    """Adds gamma * phi(s') - phi(s); phi is the discounted chance that a random walk arrives at the goal."""

    def __init__(self, env, gamma=0.98, scale=1.0):
        super().__init__(env)
        self.gamma, self.scale = gamma, scale
        self.field = None

    def reset(self, **kwargs):
        obs, info = self.env.reset(**kwargs)
        maze = self.env.unwrapped
        self.free = ~maze.walls[2:-2, 2:-2]
        self.walk = self._random_walk()
        self.field = self._solve() if FIXED else None
        self.last = self.potential(maze.pos)
        return obs, info

    def _random_walk(self):
        walls = self.env.unwrapped.walls
        cells = np.argwhere(self.free) + 2
        number = np.full(walls.shape, -1)
        number[tuple(cells.T)] = np.arange(len(cells))
        walk = np.zeros((len(cells), len(cells)))
        for move in MOVES:
            there = number[tuple((cells + move).T)]
            walk[np.arange(len(cells)), np.where(there < 0, np.arange(len(cells)), there)] += 0.25
        self.number = number
        return walk

    def _solve(self):
        goal = self.number[tuple(self.env.unwrapped.goal)]
        system = np.eye(len(self.walk)) - 0.97 * self.walk
        system[goal] = 0.0
        system[goal, goal] = 1.0
        arrival = np.zeros(len(self.walk))
        arrival[goal] = 1.0
        return np.linalg.solve(system, arrival)

    def potential(self, cell):
        field = self._solve() if self.field is None else self.field
        return self.scale * (1.0 + 0.1 * np.log(field[self.number[tuple(cell)]] + 1e-6))

    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        now = self.potential(self.env.unwrapped.pos)
        reward += self.gamma * (0.0 if terminated else now) - self.last
        self.last = now
        return obs, float(reward), terminated, truncated, info


def make(rank):
    def build():
        env = Monitor(MazePotential(RandomMaze()))
        env.reset(seed=100 + rank)
        return env
    return build


def main():
    envs = DummyVecEnv([make(i) for i in range(4)])
    model = PPO("MlpPolicy", envs, n_steps=128, batch_size=128, n_epochs=5, learning_rate=7e-4, gamma=0.98,
                ent_coef=0.01, seed=4, device="cpu")
    start = time.perf_counter()
    model.learn(total_timesteps=TOTAL_STEPS)
    seconds = time.perf_counter() - start
    lately = [episode["r"] for episode in model.ep_info_buffer]
    print("return of the last", len(lately), "episodes:", round(float(np.mean(lately)), 3))
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.2f}")


main()
