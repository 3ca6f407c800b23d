"""A small policy gradient with a hand-written pool of worker processes behind pipes, or a plain loop.

python workers.py --pool processes --envs 4 --work python:2 --steps 2048 [--learner torch]
"""

import argparse
import multiprocessing
import time

import numpy as np
from parts import make_env, make_learner, train


def work(pipe, kind, number):
    env = make_env(kind)
    pipe.send(env.reset(seed=number)[0])
    while (action := pipe.recv()) is not None:
        pipe.send(step_one(env, action))


def step_one(env, action):
    observation, reward, terminated, truncated, _ = env.step(int(action))
    if terminated or truncated:
        observation, _ = env.reset()
    return observation, reward


class Processes:
    def __init__(self, kind, envs):
        self.pipes, self.processes = [], []
        for number in range(envs):
            ours, theirs = multiprocessing.Pipe()
            self.processes.append(multiprocessing.Process(target=work, args=(theirs, kind, number), daemon=True))
            self.processes[-1].start()
            self.pipes.append(ours)
        self.first = np.stack([pipe.recv() for pipe in self.pipes])

    def step_all(self, actions):
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(action)
        observations, rewards = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        return np.stack(observations), np.array(rewards)

    def close(self):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


class Loop:
    def __init__(self, kind, envs):
        self.envs = [make_env(kind) for _ in range(envs)]
        self.first = np.stack([env.reset(seed=number)[0] for number, env in enumerate(self.envs)])

    def step_all(self, actions):
        observations, rewards = zip(*map(step_one, self.envs, actions), strict=True)
        return np.stack(observations), np.array(rewards)

    def close(self):
        for env in self.envs:
            env.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pool", choices=("processes", "loop"), required=True)
    parser.add_argument("--envs", type=int, default=4)
    parser.add_argument("--work", default="cartpole")
    parser.add_argument("--learner", choices=("numpy", "torch"), default="numpy")
    parser.add_argument("--steps", type=int, default=2048)
    args = parser.parse_args()

    pool = (Processes if args.pool == "processes" else Loop)(args.work, args.envs)
    learner = make_learner(args.learner)
    began = time.perf_counter()
    steps, updates = train(learner, pool.first, pool.step_all, args.envs, args.steps)
    print("LOOP", time.perf_counter() - began, steps, updates)
    pool.close()


if __name__ == "__main__":
    main()
