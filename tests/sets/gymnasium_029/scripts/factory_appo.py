"""APPO on CartPole with sample-factory: its workers, its learner and its queues, all in processes of their own."""

import sys

import gymnasium as gym
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl


def make(name, cfg, env_config, render_mode=None):
    return gym.make("CartPole-v1", render_mode=render_mode)


ARGUMENTS = [
    "--env=cartpole", "--experiment=small", "--train_dir=trained", "--device=cpu", "--seed=0", "--num_workers=2",
    "--num_envs_per_worker=2", "--worker_num_splits=2", "--rollout=32", "--recurrence=1", "--use_rnn=False",
    "--batch_size=256", "--num_batches_per_epoch=1", "--num_epochs=1", "--train_for_env_steps=2048",
]  # fmt: skip

if __name__ == "__main__":
    register_env("cartpole", make)
    parser, _ = parse_sf_args(ARGUMENTS)
    sys.exit(run_rl(parse_full_cfg(parser, ARGUMENTS)))
