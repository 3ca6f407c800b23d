"""PPO on CartPole as rl_zoo3 trains it, with its own command line."""

import sys

from rl_zoo3.train import train

sys.argv = ["train.py", "--algo", "ppo", "--env", "CartPole-v1", "--n-timesteps", "1024", "--seed", "0", "--device", "cpu",
            "--eval-freq", "-1", "--log-folder", "logs", "--verbose", "0",
            "--hyperparams", "n_envs:2", "n_steps:128", "batch_size:64", "n_epochs:2"]  # fmt: skip
train()
