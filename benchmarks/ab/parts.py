"""What the training scripts beside this file share: environments whose steps cost what is asked for, and two small learners.

A step's work is a fixed amount, never "until the clock says so": where two environments want the same core, it shows.
"""

import time

import gymnasium as gym
import numpy as np

PYTHON_ROUNDS = 16_000  # about a millisecond
NUMPY_SIZE = 80_000  # sines, about a millisecond


class Work(gym.Env):
    """Episodes of 50 steps, each of which sleeps, computes in Python, or computes in NumPy, which gives the lock away."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind, milliseconds):
        self.kind, self.milliseconds = kind, milliseconds
        self.array = np.linspace(0.0, 1.0, int(NUMPY_SIZE * milliseconds))
        self.out = np.empty_like(self.array)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        if self.kind == "sleep":
            time.sleep(self.milliseconds / 1000)
        elif self.kind == "python":
            total = 0
            for number in range(int(PYTHON_ROUNDS * self.milliseconds)):
                total += number & action
        else:
            np.sin(self.array, out=self.out)
        self.steps += 1
        return self._observe(), float(action), False, self.steps == 50, {}

    def _observe(self):
        return self.np_random.normal(size=4).astype(np.float32)


def make_env(work):
    """`cartpole`, or `sleep:2`, `python:2`, `numpy:2`: what a step does, and for how many milliseconds, roughly."""
    kind, _, milliseconds = work.partition(":")
    return gym.make("CartPole-v1") if kind == "cartpole" else Work(kind, float(milliseconds))


class NumpyLearner:
    """A linear policy and its gradient, by hand."""

    def __init__(self):
        self.random = np.random.default_rng(1)
        self.weights = np.zeros((4, 2))
        self.updates = 0

    def act(self, observations):
        self.chances = 1 / (1 + np.exp(-(observations @ self.weights)[:, 1]))
        return (self.random.random(len(observations)) < self.chances).astype(int)

    def learn(self, observations, actions, rewards):
        for _ in range(4):
            chances = 1 / (1 + np.exp(-(observations @ self.weights)[:, 1]))
            self.weights[:, 1] += 0.01 * observations.T @ ((actions - chances) * rewards) / len(rewards)
            self.updates += 1


class TorchLearner:
    """The same with a small network."""

    def __init__(self):
        import torch

        self.torch = torch
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.network = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=1e-3)
        self.updates = 0

    def act(self, observations):
        with self.torch.no_grad():
            logits = self.network(self.torch.as_tensor(observations))
        return self.torch.distributions.Categorical(logits=logits).sample().numpy()

    def learn(self, observations, actions, rewards):
        torch = self.torch
        observations, actions = torch.as_tensor(observations), torch.as_tensor(actions)
        rewards = torch.as_tensor(rewards, dtype=torch.float32)
        for _ in range(4):
            chosen = torch.distributions.Categorical(logits=self.network(observations)).log_prob(actions)
            loss = -(chosen * rewards).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.updates += 1


def make_learner(name):
    return TorchLearner() if name == "torch" else NumpyLearner()


def train(learner, observations, step_all, envs, steps, rollout=32):
    """Rollouts of `rollout` steps in all environments, then four updates; env steps and updates, by this loop's own count.
    `step_all(actions)` answers observations and rewards."""
    done = 0
    while done < steps:
        batch = []
        for _ in range(rollout):
            actions = learner.act(observations)
            following, rewards = step_all(actions)
            batch.append((observations, actions, rewards))
            observations = following
            done += envs
        learner.learn(*(np.concatenate(column) for column in zip(*batch, strict=True)))
    return done, learner.updates
