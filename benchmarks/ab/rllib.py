"""RLlib's PPO with its environments in actors of their own (env runners), or in the driver.

python rllib.py --runners 2 --work python:1 --iterations 4
"""

import argparse
import time

import ray
import torch
from parts import make_env
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

BATCH = 512


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runners", type=int, required=True)
    parser.add_argument("--work", default="cartpole")
    parser.add_argument("--iterations", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)

    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    register_env("work", lambda _: make_env(args.work))
    config = (
        PPOConfig()
        .environment("work")
        .env_runners(num_env_runners=args.runners, rollout_fragment_length=BATCH // max(args.runners, 1))
        .training(train_batch_size_per_learner=BATCH, minibatch_size=128, num_epochs=2)
        .debugging(seed=1)
    )
    algorithm = config.build_algo()
    began = time.perf_counter()
    for _ in range(args.iterations):
        result = algorithm.train()
    seconds = time.perf_counter() - began
    steps = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
    print("LOOP", seconds, steps, args.iterations * 2 * (BATCH // 128))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
