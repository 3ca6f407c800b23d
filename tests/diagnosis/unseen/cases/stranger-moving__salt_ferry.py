"""Double DQN on a cart balancing task, transitions as TensorDicts in a torchrl replay buffer."""
import copy
import os
import time

import gymnasium as gym
import numpy as np
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, ListStorage, TensorDictReplayBuffer

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

ENV_STEPS = 1400
WARMUP = 200
BATCH = 128
GAMMA = 0.99
CAPACITY = 10_000
TAU = 0.01


def make_buffer():
    storage = LazyTensorStorage(CAPACITY) if FIXED else ListStorage(CAPACITY)
    return TensorDictReplayBuffer(storage=storage, batch_size=BATCH)


def q_network(n_obs, n_actions):
    return nn.Sequential(nn.Linear(n_obs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_actions))


def transition(obs, action, reward, next_obs, terminated):
    return TensorDict({
        "obs": torch.from_numpy(obs),
        "action": torch.tensor(action),
        "reward": torch.tensor(reward, dtype=torch.float32),
        "next_obs": torch.from_numpy(next_obs),
        "terminated": torch.tensor(terminated, dtype=torch.float32),
    })


class Learner:
    def __init__(self, n_obs, n_actions):
        self.online = q_network(n_obs, n_actions)
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=1e-3)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs):
        return int(self.online(torch.from_numpy(obs)).argmax())

    def update(self, batch):
        with torch.no_grad():
            best = self.online(batch["next_obs"]).argmax(dim=1, keepdim=True)
            future = self.target(batch["next_obs"]).gather(1, best).squeeze(1)
            goal = batch["reward"] + GAMMA * (1 - batch["terminated"]) * future
        value = self.online(batch["obs"]).gather(1, batch["action"].unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.online.parameters()), TAU)
        self.updates += 1


def main():
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env = gym.make("CartPole-v1")
    learner = Learner(4, 2)
    buffer = make_buffer()
    obs, _ = env.reset(seed=2)
    lengths, length = [], 0
    start = time.perf_counter()
    for step in range(ENV_STEPS):
        epsilon = max(0.05, 1.0 - step / 800)
        action = int(rng.integers(2)) if rng.random() < epsilon else learner.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(transition(obs, action, reward, next_obs, terminated))
        length += 1
        obs = next_obs
        if terminated or truncated:
            lengths.append(length)
            length = 0
            obs, _ = env.reset()
        if step >= WARMUP:
            learner.update(buffer.sample())
        if (step + 1) % 350 == 0:
            print(f"step {step + 1:5d}  episodes {len(lengths):3d}  length {np.mean(lengths[-10:]):.1f}")
    seconds = time.perf_counter() - start
    env.close()
    print(f"env_steps={ENV_STEPS} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
