"""tianshou: REINFORCE on four environments.

python tianshou_reinforce.py
"""

import torch
from tally import Tally, Walk
from tianshou.algorithm import Reinforce
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from torch import nn
from torch.distributions import Categorical

ENVS, STEPS, ITERATIONS = 4, 1024, 5


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def forward(self, obs, state=None, info=None):
        return self.layers(torch.as_tensor(obs, dtype=torch.float32)), state


def main():
    torch.set_num_threads(1)
    tally = Tally()
    tally.watch_updates()

    def begin(epoch, step):
        tally.iterations += 1

    policy = ProbabilisticActorPolicy(
        actor=Network(), dist_fn=lambda logits: Categorical(logits=logits), action_space=Walk.action_space,
        action_scaling=False, action_bound_method=None,
    )  # fmt: skip
    algorithm = Reinforce(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    collector = Collector(algorithm, DummyVectorEnv([lambda: Walk(tally)] * ENVS), VectorReplayBuffer(ENVS * STEPS, ENVS))
    algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=collector, max_epochs=1, epoch_num_steps=STEPS * ITERATIONS, collection_step_num_env_steps=STEPS,
            batch_size=128, update_step_num_repetitions=2, training_fn=begin, show_progress=False, verbose=False,
        )
    )  # fmt: skip
    tally.say(STEPS * ITERATIONS, ITERATIONS * 2 * (STEPS // 128))


if __name__ == "__main__":
    main()
