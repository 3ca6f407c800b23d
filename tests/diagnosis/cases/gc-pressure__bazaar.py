"""Tabular Monte Carlo control for a bazaar with many stalls; the diary of all visits stays in memory for the final report."""

import gc
import os
import random
import time
from dataclasses import dataclass, field

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Visit:
    stall: int
    purse: int
    offer: int
    accepted: bool
    reward: float
    tags: list = field(default_factory=list)


@dataclass
class Diary:
    days: list = field(default_factory=list)

    def add(self, visits):
        self.days.append({"visits": visits, "profit": sum(v.reward for v in visits)})


class Bazaar:
    def __init__(self, rng, stalls=12):
        self.rng, self.stalls = rng, stalls

    def reset(self):
        self.stall, self.purse = 0, 10
        self.offer = self.rng.randint(1, 9)
        return self.stall, self.purse, self.offer

    def step(self, accept):
        reward = 0.0
        if accept and self.purse >= self.offer:
            self.purse -= self.offer
            reward = self.rng.gauss(5.0, 1.0) - self.offer
        self.stall += 1
        self.offer = self.rng.randint(1, 9)
        return (self.stall, self.purse, self.offer), reward, self.stall == self.stalls


class MonteCarlo:
    def __init__(self, rng, epsilon=0.1):
        self.rng, self.epsilon = rng, epsilon
        self.q, self.n = {}, {}
        self.updates = 0

    def act(self, state):
        if self.rng.random() < self.epsilon:
            return self.rng.randrange(2)
        return int(self.q.get((state, 1), 0.0) >= self.q.get((state, 0), 0.0))

    def learn(self, path):
        g = 0.0
        for state, action, reward in reversed(path):
            g += reward
            key = (state, action)
            self.n[key] = self.n.get(key, 0) + 1
            self.q[key] = self.q.get(key, 0.0) + (g - self.q.get(key, 0.0)) / self.n[key]
        self.updates += 1


def one_day(env, agent, diary):
    state, done, path, visits = env.reset(), False, [], []
    while not done:
        action = agent.act(state)
        nxt, reward, done = env.step(action)
        path.append((state, action, reward))
        visits.append(Visit(state[0], state[1], state[2], bool(action), reward, ["day"]))
        state = nxt
    agent.learn(path)
    diary.add(visits)
    return len(path)


def main(days=36_000):
    rng = random.Random(27)
    began = time.time()
    env, agent, diary = Bazaar(rng), MonteCarlo(rng), Diary()
    steps = 0
    for day in range(days):
        steps += one_day(env, agent, diary)
        if day % 700 == 0 and not FIXED:
            gc.collect()
    print(f"best day {max(d['profit'] for d in diary.days):.2f}")
    print(f"env_steps={steps} updates={agent.updates} seconds={time.time() - began:.2f}")


if __name__ == "__main__":
    main()
