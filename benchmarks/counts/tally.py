"""Counting by hand: what the scripts beside this file did, by their own count, in every process and thread.

Steps, resets and ended episodes are counted by the environment itself, updates by torch's own hook or the script's loop.
"""

import json
from multiprocessing import Value

import gymnasium as gym
import numpy as np


class Tally:
    """Numbers that forked workers and threads share."""

    def __init__(self):
        self.steps, self.resets, self.episodes = Value("q", 0), Value("q", 0), Value("q", 0)
        self.updates = self.iterations = 0
        self.autoresets = None  # places in a vector step at which an environment was only reset

    def add(self, number):
        with number.get_lock():
            number.value += 1

    def watch_updates(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def count(*_):
            self.updates += 1

        register_optimizer_step_post_hook(count)

    def say(self, asked_steps, asked_updates=None):
        """One line of JSON. A count that does not fit what the script asked for is an error of this script."""
        own = {
            "env_steps": self.steps.value, "updates": self.updates, "episodes": self.episodes.value,
            "resets": self.resets.value, "autoresets": self.autoresets, "iterations": self.iterations,
        }  # fmt: skip
        if own["env_steps"] + (self.autoresets or 0) != asked_steps:
            raise SystemExit(f"asked for {asked_steps} steps, counted {own}")
        if asked_updates not in (None, self.updates):
            raise SystemExit(f"asked for {asked_updates} updates, counted {own}")
        print("OWN " + json.dumps(own))


class Walk(gym.Env):
    """A random walk on a line that ends at its edges, or after a hundred steps."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, tally=None):
        self.tally = tally

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.tally is not None:
            self.tally.add(self.tally.resets)
        self.place, self.age = 0.0, 0
        return self._observe(), {}

    def step(self, action):
        self.place += float(action) - 0.5 + float(self.np_random.normal())
        self.age += 1
        terminated, truncated = abs(self.place) > 6, self.age == 100
        if self.tally is not None:
            self.tally.add(self.tally.steps)
            if terminated or truncated:
                self.tally.add(self.tally.episodes)
        return self._observe(), 1.0, terminated, truncated, {}

    def _observe(self):
        return np.array([self.place, self.age / 100, 0.0, 1.0], np.float32)
