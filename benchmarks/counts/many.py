"""Loops by hand on four environments: a vector environment of one's own that steps them in a thread pool, in threads that are
fed by queues, or in worker processes behind pipes.

python many.py executor|queues|processes
"""

import multiprocessing
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from learner import Learner
from tally import Tally, Walk

ENVS, STEPS, BATCHES = 4, 256, 5


def step_one(env, action):
    observation, reward, terminated, truncated, _ = env.step(int(action))
    if terminated or truncated:
        observation, _ = env.reset()
    return observation, reward


class ExecutorVec:
    def __init__(self, tally):
        self.envs, self.pool = [Walk(tally) for _ in range(ENVS)], ThreadPoolExecutor(ENVS)

    def reset(self):
        return np.stack([env.reset(seed=number)[0] for number, env in enumerate(self.envs)])

    def step(self, actions):
        observations, rewards = zip(*self.pool.map(step_one, self.envs, actions), strict=True)
        return np.stack(observations), np.array(rewards)

    def close(self):
        self.pool.shutdown()


class QueueVec:
    def __init__(self, tally):
        self.envs = [Walk(tally) for _ in range(ENVS)]
        self.inboxes, self.outboxes = [queue.Queue() for _ in self.envs], [queue.Queue() for _ in self.envs]
        self.threads = [threading.Thread(target=self._serve, args=(number,)) for number in range(ENVS)]
        for thread in self.threads:
            thread.start()

    def _serve(self, number):
        while (action := self.inboxes[number].get()) is not None:
            self.outboxes[number].put(step_one(self.envs[number], action))

    def reset(self):
        return np.stack([env.reset(seed=number)[0] for number, env in enumerate(self.envs)])

    def step(self, actions):
        for inbox, action in zip(self.inboxes, actions, strict=True):
            inbox.put(action)
        observations, rewards = zip(*(outbox.get() for outbox in self.outboxes), strict=True)
        return np.stack(observations), np.array(rewards)

    def close(self):
        for inbox, thread in zip(self.inboxes, self.threads, strict=True):
            inbox.put(None)
            thread.join()


def serve(pipe, tally, number):
    env = Walk(tally)
    pipe.send(env.reset(seed=number)[0])
    while (action := pipe.recv()) is not None:
        pipe.send(step_one(env, action))


class ProcessPool:
    def __init__(self, tally):
        context = multiprocessing.get_context("fork")
        both = [context.Pipe() for _ in range(ENVS)]
        self.pipes = [ours for ours, _ in both]
        self.workers = [context.Process(target=serve, args=(both[n][1], tally, n)) for n in range(ENVS)]
        for worker in self.workers:
            worker.start()

    def reset(self):
        return np.stack([pipe.recv() for pipe in self.pipes])

    def step(self, actions):
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(action)
        observations, rewards = zip(*(pipe.recv() for pipe in self.pipes), strict=True)
        return np.stack(observations), np.array(rewards)

    def close(self):
        for pipe, worker in zip(self.pipes, self.workers, strict=True):
            pipe.send(None)
            worker.join()


def main():
    tally = Tally()
    envs = {"executor": ExecutorVec, "queues": QueueVec, "processes": ProcessPool}[sys.argv[1]](tally)
    learner = Learner(tally)
    observations = envs.reset()
    for _ in range(BATCHES):
        batch = []
        for _ in range(STEPS):
            actions = learner.act(observations)
            following, rewards = envs.step(actions)
            batch.append((observations, actions, rewards))
            observations = following
        learner.learn(*(np.concatenate(column) for column in zip(*batch, strict=True)))
    envs.close()
    tally.say(ENVS * STEPS * BATCHES, BATCHES * 10)


if __name__ == "__main__":
    main()
