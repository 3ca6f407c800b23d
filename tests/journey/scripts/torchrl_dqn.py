"""DQN the TorchRL way: collector, replay buffer, DQNLoss, a target network."""

import copy
import os
import time

import gymnasium as gym
import numpy as np
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ListStorage, TensorDictReplayBuffer
from torchrl.envs import GymWrapper
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

FIXED = os.environ.get("FIXED", "0") == "1"


class Crane(gym.Env):
    """Move the trolley so that the swinging load hangs still over the mark."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([0.0, 0.0, self.np_random.uniform(-0.3, 0.3), 0.0, self.np_random.uniform(-1, 1)])
        self.elapsed = 0
        return self.state.astype(np.float32), {}

    def step(self, action):
        x, v, angle, spin, mark = self.state
        push = 0.5 * (int(action) - 1)
        v = 0.98 * v + 0.1 * push
        spin = 0.99 * spin - 0.1 * (np.sin(angle) + push * np.cos(angle))
        self.state = np.array([x + 0.1 * v, v, angle + 0.1 * spin, spin, mark])
        self.elapsed += 1
        load = self.state[0] + np.sin(self.state[2])
        return self.state.astype(np.float32), float(-abs(load - mark)), False, self.elapsed >= 100, {}


def main(frames=3000, batch=128):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    begin = time.time()
    env = GymWrapper(Crane(), device="cpu")
    net = TensorDictModule(
        nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3)), in_keys=["observation"], out_keys=["action_value"]
    )
    actor = QValueActor(copy.deepcopy(net.module), spec=env.action_spec, in_keys=["observation"])
    explore = EGreedyModule(env.action_spec, eps_init=0.5, eps_end=0.05, annealing_num_steps=frames // 2)
    loss_module = DQNLoss(actor, action_space=env.action_spec, delay_value=True)
    loss_module.make_value_estimator(gamma=0.98)
    target = SoftUpdate(loss_module, eps=0.99)
    storage = LazyTensorStorage(20_000) if FIXED else ListStorage(20_000)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=batch)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
    collector = Collector(env, TensorDictSequential(actor, explore), frames_per_batch=100, total_frames=frames, device="cpu")
    updates = 0
    for data in collector:
        explore.step(data.numel())
        buffer.extend(data.reshape(-1))
        for _ in range(8):
            loss = loss_module(buffer.sample())["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.step()
            updates += 1
    collector.shutdown()
    print(f"env_steps={frames} updates={updates} seconds={time.time() - begin:.2f}")


if __name__ == "__main__":
    main()
