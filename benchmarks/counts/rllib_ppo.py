"""RLlib's PPO with two env runners. Its environments live in actors, so the count is RLlib's own.

python rllib_ppo.py
"""

import json

import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from tally import Tally

ITERATIONS, BATCH = 3, 512


def main():
    torch.set_num_threads(1)
    tally = Tally()
    ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=2, rollout_fragment_length=BATCH // 2)
        .training(train_batch_size_per_learner=BATCH, minibatch_size=128, num_epochs=2)
    )
    algorithm = config.build_algo()
    tally.watch_updates()
    for _ in range(ITERATIONS):
        result = algorithm.train()
    sampled = result["env_runners"]
    own = {
        "env_steps": int(sampled["num_env_steps_sampled_lifetime"]), "updates": tally.updates,
        "episodes": int(sampled["num_episodes_lifetime"]), "resets": None, "autoresets": None, "iterations": ITERATIONS,
    }  # fmt: skip
    algorithm.stop()
    ray.shutdown()
    if own["env_steps"] != ITERATIONS * BATCH:
        raise SystemExit(f"asked for {ITERATIONS * BATCH} steps, counted {own}")
    print("OWN " + json.dumps(own))


if __name__ == "__main__":
    main()
