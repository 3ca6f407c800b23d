"""SB3 DQN on Acrobot with multi-step returns from a custom replay buffer and a small monitoring callback."""
import os
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import ReplayBufferSamples

FIXED = os.environ.get("FIXED") == "1"


class ShapedObs(gym.ObservationWrapper):
    """Adds slow running averages of the joint velocities."""

    def __init__(self, env):
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high
        self.observation_space = gym.spaces.Box(np.append(low, low[-2:]), np.append(high, high[-2:]), dtype=np.float32)
        self.avg = np.zeros(2, np.float32)

    def reset(self, **kwargs):
        self.avg = np.zeros(2, np.float32)
        return super().reset(**kwargs)

    def observation(self, obs):
        self.avg = 0.9 * self.avg + 0.1 * obs[-2:]
        return np.concatenate([obs, self.avg]).astype(np.float32)


class MultiStepBuffer(ReplayBuffer):
    def __init__(self, *args, horizon=10, gamma=0.99, **kwargs):
        super().__init__(*args, **kwargs)
        self.horizon, self.gamma = horizon, gamma

    def _targets(self, start):
        newest = (self.pos - 1) % self.buffer_size
        if FIXED:
            steps = (start[:, None] + np.arange(self.horizon)) % self.buffer_size
            stop = (self.dones[steps, 0] > 0) | (steps == newest)
            before = np.cumsum(stop, 1) - stop
            live = before == 0
            ret = (self.rewards[steps, 0] * live * self.gamma ** np.arange(self.horizon)).sum(1)
            return ret.astype(np.float32), steps[np.arange(len(start)), live.sum(1) - 1]
        ret = np.zeros(len(start), np.float32)
        last = np.zeros(len(start), np.int64)
        for row, i in enumerate(start):
            total, scale = 0.0, 1.0
            for k in range(self.horizon):
                j = (i + k) % self.buffer_size
                total += scale * self.rewards[j, 0]
                scale *= self.gamma
                if self.dones[j, 0] or j == newest:
                    break
            ret[row], last[row] = total, j
        return ret, last

    def _get_samples(self, batch_inds, env=None):
        ret, last = self._targets(batch_inds)
        data = (
            self.observations[batch_inds, 0],
            self.actions[batch_inds, 0],
            self.next_observations[last, 0],
            (self.dones[last, 0] * (1 - self.timeouts[last, 0])).reshape(-1, 1),
            ret.reshape(-1, 1),
        )
        return ReplayBufferSamples(*map(self.to_torch, data))


class Watch(BaseCallback):
    def __init__(self):
        super().__init__()
        self.reward, self.episodes = 0.0, 0

    def _on_step(self):
        self.reward += float(self.locals["rewards"][0])
        self.episodes += int(self.locals["dones"][0])
        return True


def main():
    torch.set_num_threads(1)
    env = ShapedObs(gym.make("Acrobot-v1"))
    model = DQN(
        "MlpPolicy", env, seed=7, learning_rate=5e-4, buffer_size=20_000, batch_size=320, learning_starts=500,
        train_freq=4, gradient_steps=1, target_update_interval=500, gamma=0.99 ** 10, exploration_fraction=0.3,
        replay_buffer_class=MultiStepBuffer, replay_buffer_kwargs={"horizon": 10, "gamma": 0.99},
        policy_kwargs={"net_arch": [64, 64]}, device="cpu",
    )
    start = time.perf_counter()
    model.learn(4500, callback=Watch())
    seconds = time.perf_counter() - start
    print(f"env_steps={model.num_timesteps} updates={model._n_updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
