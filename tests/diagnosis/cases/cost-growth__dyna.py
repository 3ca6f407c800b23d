"""Dyna-Q in a windy grid with moving gusts: after every real step the table is improved from a learned model."""

import os
import random
import time
from collections import defaultdict

FIXED = os.environ.get("FIXED") == "1"
WIDTH, HEIGHT, GUSTS = 10, 8, 6
MOVES = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class WindyGrid:
    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.x, self.y = 0, HEIGHT // 2
        self.gust = self.rng.randrange(GUSTS)
        self.clock = 0
        return self.x, self.y, self.gust

    def step(self, action):
        dx, dy = MOVES[action]
        lift = 1 if self.x % GUSTS == self.gust else 0
        self.x = min(max(self.x + dx, 0), WIDTH - 1)
        self.y = min(max(self.y + dy + lift, 0), HEIGHT - 1)
        self.gust = (self.gust + 1) % GUSTS
        self.clock += 1
        goal = (self.x, self.y) == (WIDTH - 1, HEIGHT // 2)
        return (self.x, self.y, self.gust), (10.0 if goal else -0.1), goal, self.clock >= 200


class DynaQ:
    def __init__(self, rng, planning=12, alpha=0.2, gamma=0.97):
        self.rng, self.planning, self.alpha, self.gamma = rng, planning, alpha, gamma
        self.q = defaultdict(lambda: [0.0] * 4)
        self.model = {}
        self.known = []
        self.updates = 0

    def act(self, state, epsilon):
        if self.rng.random() < epsilon:
            return self.rng.randrange(4)
        row = self.q[state]
        return row.index(max(row))

    def backup(self, s, a, r, s2, end):
        best = 0.0 if end else max(self.q[s2])
        self.q[s][a] += self.alpha * (r + self.gamma * best - self.q[s][a])

    def learn(self, s, a, r, s2, end):
        self.backup(s, a, r, s2, end)
        if (s, a) not in self.model:
            self.known.append((s, a))
        self.model[s, a] = (r, s2, end)
        self.plan()
        self.updates += 1

    def plan(self):
        for _ in range(self.planning):
            s, a = self.rng.choice(self.known if FIXED else list(self.model.keys()))
            self.backup(s, a, *self.model[s, a])


def main(steps=60_000):
    rng = random.Random(10)
    start = time.time()
    env, agent = WindyGrid(rng), DynaQ(rng)
    state = env.reset()
    for t in range(steps):
        action = agent.act(state, max(0.1, 1 - t / 40_000))
        nxt, reward, end, late = env.step(action)
        agent.learn(state, action, reward, nxt, end)
        state = env.reset() if end or late else nxt
    print(f"env_steps={steps} updates={agent.updates} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
