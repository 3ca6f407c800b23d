"""A small policy gradient that steps its environments in a thread pool, or in a plain loop.

python threads.py --pool threads --envs 4 --work sleep:2 --steps 2048 [--learner torch]
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from parts import make_env, make_learner, train


def step_one(env, action):
    observation, reward, terminated, truncated, _ = env.step(int(action))
    if terminated or truncated:
        observation, _ = env.reset()
    return observation, reward


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", choices=("threads", "loop"), required=True)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--work", default="cartpole")
    parser.add_argument("--learner", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--steps", type=int, default=2048)
    args = parser.parse_args()

    envs = [make_env(args.work) for _ in range(args.envs)]
    learner = make_learner(args.learner)
    observations = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)])
    with ThreadPoolExecutor(args.envs) as pool:
        step_envs = pool.map if args.pool == "threads" else map

        def step_all(actions):
            observations, rewards = zip(*step_envs(step_one, envs, actions), strict=True)
            return np.stack(observations), np.array(rewards)

        began = time.perf_counter()
        steps, updates = train(learner, observations, step_all, args.envs, args.steps)
        print("LOOP", time.perf_counter() - began, steps, updates)


if __name__ == "__main__":
    main()
