"""DQN on CartPole with tianshou 2: four environments in one process."""

import gymnasium as gym
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

torch.set_num_threads(1)
torch.manual_seed(0)

env = gym.make("CartPole-v1")
training = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(4)])
test = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
training.seed(0)
test.seed(1)

model = Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[64, 64])
policy = DiscreteQLearningPolicy(model=model, action_space=env.action_space, eps_training=0.1, eps_inference=0.05)
algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), gamma=0.9, n_step_return_horizon=3, target_update_freq=320)

result = algorithm.run_training(
    OffPolicyTrainerParams(
        training_collector=Collector(algorithm, training, VectorReplayBuffer(20000, 4), exploration_noise=True),
        test_collector=Collector(algorithm, test),
        max_epochs=2,
        epoch_num_steps=800,
        collection_step_num_env_steps=40,
        update_step_num_gradient_steps_per_sample=0.1,
        batch_size=64,
        test_step_num_episodes=2,
        verbose=False,
        show_progress=False,
    )
)
print("steps", result.train_step)
