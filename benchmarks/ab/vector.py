"""A small policy gradient on gymnasium's vector environments: in worker processes, or one after the other.

python vector.py --vec async --envs 4 --work sleep:2 --steps 2048 [--learner torch]
"""

import argparse
import time

import gymnasium as gym
from parts import make_env, make_learner, train


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vec", choices=("async", "sync"), required=True)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--work", default="cartpole")
    parser.add_argument("--learner", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--steps", type=int, default=2048)
    args = parser.parse_args()

    makers = [lambda: make_env(args.work)] * args.envs
    envs = gym.vector.AsyncVectorEnv(makers) if args.vec == "async" else gym.vector.SyncVectorEnv(makers)
    learner = make_learner(args.learner)
    observations, _ = envs.reset(seed=1)

    def step_all(actions):
        observations, rewards, *_ = envs.step(actions)
        return observations.copy(), rewards

    began = time.perf_counter()
    steps, updates = train(learner, observations, step_all, args.envs, args.steps)
    print("LOOP", time.perf_counter() - began, steps, updates)
    envs.close()


if __name__ == "__main__":
    main()
