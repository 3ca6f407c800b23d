"""Double DQN on CartPole with TorchRL: collector, replay buffer, annealed reward scale."""
import os
import time

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import Compose, GymEnv, ObservationNorm, RewardScaling, StepCounter, TransformedEnv
from torchrl.modules import EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate

FIXED = os.environ.get("FIXED") == "1"

FRAMES = 500
FRAMES_PER_BATCH = 50
UPDATES_PER_BATCH = 100
BATCH_SIZE = 128


def make_env(seed):
    transforms = Compose(
        ObservationNorm(loc=0.0, scale=0.5, in_keys=["observation"]),
        RewardScaling(loc=0.0, scale=1.0),
        StepCounter(max_steps=300),
    )
    # the reward scale is annealed during training
    env = TransformedEnv(GymEnv("CartPole-v1"), transforms, cache_specs=FIXED)
    env.set_seed(seed)
    return env


def make_policy(env):
    net = nn.Sequential(
        nn.Linear(env.observation_spec["observation"].shape[-1], 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, env.action_spec.shape[-1]),
    )
    value = TensorDictModule(net, in_keys=["observation"], out_keys=["action_value"])
    greedy = TensorDictSequential(value, QValueModule(spec=env.action_spec))
    explore = EGreedyModule(env.action_spec, eps_init=0.6, eps_end=0.05, annealing_num_steps=FRAMES)
    return greedy, explore


class Learner:
    def __init__(self, greedy, action_spec):
        self.loss = DQNLoss(value_network=greedy, action_space=action_spec, delay_value=True, double_dqn=True)
        self.loss.make_value_estimator(gamma=0.98)
        self.optim = torch.optim.Adam(self.loss.parameters(), lr=5e-4)
        self.target = SoftUpdate(self.loss, eps=0.98)
        self.updates = 0

    def update(self, batch):
        value = self.loss(batch)["loss"]
        value.backward()
        torch.nn.utils.clip_grad_norm_(self.loss.parameters(), 10.0)
        self.optim.step()
        self.optim.zero_grad()
        self.target.step()
        self.updates += 1
        return value.detach()


def train(env, collector, explore, buffer, learner):
    scaling = env.transform[1]
    frames = 0
    episodes = []
    for data in collector:
        frames += data.numel()
        buffer.extend(data)
        done = data["next", "done"].squeeze(-1)
        episodes.extend(data["next", "step_count"].squeeze(-1)[done].tolist())
        for _ in range(UPDATES_PER_BATCH):
            loss = learner.update(buffer.sample(BATCH_SIZE))
        explore.step(data.numel())
        scaling.scale.mul_(0.97)
    return frames, episodes, float(loss)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make_env(seed=0)
    greedy, explore = make_policy(env)
    collector = Collector(
        env,
        TensorDictSequential(greedy, explore),
        frames_per_batch=FRAMES_PER_BATCH,
        total_frames=FRAMES,
    )
    buffer = ReplayBuffer(storage=LazyTensorStorage(10_000))
    learner = Learner(greedy, env.action_spec)

    start = time.perf_counter()
    frames, episodes, loss = train(env, collector, explore, buffer, learner)
    seconds = time.perf_counter() - start

    collector.shutdown()
    mean_len = sum(episodes) / max(len(episodes), 1)
    print(f"episodes={len(episodes)} mean_length={mean_len:.1f} loss={loss:.4f}")
    print(f"env_steps={frames} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
