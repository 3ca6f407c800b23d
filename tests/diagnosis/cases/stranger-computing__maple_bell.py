"""SAC on a chain of masses, started from logged trips of a hand-tuned controller."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

FIXED = os.environ.get("FIXED") == "1"
SEED = 4
MASSES = 8
HORIZON = 120
LOGGED_TRIPS = 400
STEPS = 420


def advance(pos, vel, act):
    """One step for any number of chains at once (last axis: the masses)."""
    left = np.concatenate([np.zeros_like(pos[..., :1]), pos[..., :-1]], axis=-1)
    right = np.concatenate([pos[..., 1:], np.zeros_like(pos[..., :1])], axis=-1)
    force = 3.0 * act + 1.5 * (left + right - 2.0 * pos) - 0.4 * vel
    vel = vel + 0.05 * force
    return pos + 0.05 * vel, vel


def reward_of(pos, goal, act):
    return -((pos - goal) ** 2).mean(-1) - 0.01 * (act**2).mean(-1)


class ChainEnv(gym.Env):
    def __init__(self):
        self.observation_space = spaces.Box(-np.inf, np.inf, shape=(3 * MASSES,), dtype=np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, shape=(MASSES,), dtype=np.float32)

    def _observe(self):
        return np.concatenate([self.pos, self.vel, self.goal]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos = np.zeros(MASSES)
        self.vel = np.zeros(MASSES)
        self.goal = self.np_random.uniform(-0.8, 0.8, size=MASSES)
        self.t = 0
        return self._observe(), {}

    def step(self, action):
        self.pos, self.vel = advance(self.pos, self.vel, action)
        self.t += 1
        return self._observe(), float(reward_of(self.pos, self.goal, action)), False, self.t >= HORIZON, {}


def fill_from_log(buffer, rng):
    """Roll the old controller out on many chains and put the trips in the replay buffer."""
    goal = rng.uniform(-0.8, 0.8, size=(LOGGED_TRIPS, MASSES))
    pos, vel = np.zeros_like(goal), np.zeros_like(goal)
    for t in range(HORIZON):
        act = np.clip(1.2 * (goal - pos) - 0.3 * vel + rng.normal(0, 0.4, size=goal.shape), -1, 1)
        rows = slice(t * LOGGED_TRIPS, (t + 1) * LOGGED_TRIPS)
        buffer.observations[rows, 0] = np.concatenate([pos, vel, goal], axis=1)
        pos, vel = advance(pos, vel, act)
        buffer.next_observations[rows, 0] = np.concatenate([pos, vel, goal], axis=1)
        buffer.actions[rows, 0] = act
        buffer.rewards[rows, 0] = reward_of(pos, goal, act)
    buffer.pos = HORIZON * LOGGED_TRIPS


class ScaledInput(BaseFeaturesExtractor):
    """Standardised observations; the statistics are set from outside."""

    def __init__(self, observation_space):
        super().__init__(observation_space, observation_space.shape[0])
        self.register_buffer("running_mean", torch.zeros(observation_space.shape))
        self.register_buffer("running_std", torch.ones(observation_space.shape))

    def forward(self, obs):
        return (obs - self.running_mean) / (self.running_std + 1e-3)


class KeepScale(BaseCallback):
    """Pass mean and deviation of the replayed observations on to the networks."""

    def __init__(self):
        super().__init__()
        self.seen = 0
        self.total = np.zeros(3 * MASSES)
        self.squares = np.zeros(3 * MASSES)

    def _statistics(self):
        buffer = self.model.replay_buffer
        size = buffer.size()
        if FIXED:
            fresh = buffer.observations[self.seen:size, 0].astype(np.float64)
            self.total += fresh.sum(axis=0)
            self.squares += (fresh**2).sum(axis=0)
            self.seen = size
            mean = self.total / size
            return mean, np.sqrt(np.maximum(self.squares / size - mean**2, 0.0))
        states = buffer.observations[:size, 0]
        return states.mean(axis=0), states.std(axis=0)

    def _on_step(self):
        mean, std = (torch.as_tensor(x, dtype=torch.float32) for x in self._statistics())
        for net in (self.model.actor, self.model.critic, self.model.critic_target):
            net.features_extractor.running_mean.copy_(mean)
            net.features_extractor.running_std.copy_(std)
        return True


def main():
    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy", ChainEnv(), buffer_size=60_000, learning_starts=0, batch_size=128, gamma=0.97,
        policy_kwargs={"features_extractor_class": ScaledInput, "net_arch": [64, 64]}, seed=SEED, device="cpu",
    )
    fill_from_log(model.replay_buffer, np.random.default_rng(SEED))
    start = time.perf_counter()
    model.learn(STEPS, callback=KeepScale())
    seconds = time.perf_counter() - start
    returns = [round(float(ep["r"]), 1) for ep in model.ep_info_buffer]
    print("returns", returns)
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
