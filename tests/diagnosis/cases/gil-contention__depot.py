"""Watkins Q(lambda) for a depot crane, in plain Python; a thread keeps the figures for the wall display."""

import os
import queue
import random
import threading
import time

FIXED = os.environ.get("FIXED") == "1"
SLOTS, KINDS = 9, 4


class Display(threading.Thread):
    """Takes (name, value) pairs off its inbox and keeps running means."""

    def __init__(self):
        super().__init__(name="display", daemon=True)
        self.inbox = queue.SimpleQueue()
        self.mean, self.count = {}, {}
        self.open = True

    def post(self, name, value):
        self.inbox.put((name, value))

    def show(self, name, value):
        n = self.count[name] = self.count.get(name, 0) + 1
        old = self.mean.get(name, 0.0)
        self.mean[name] = old + (value - old) / n

    def run(self):
        if FIXED:
            while (item := self.inbox.get()) is not None:
                self.show(*item)
            return
        while self.open:
            if self.inbox.empty():
                continue
            item = self.inbox.get()
            if item is not None:
                self.show(*item)

    def close(self):
        self.open = False
        self.inbox.put(None)
        self.join()


class Depot:
    """Move left, move right, or drop the crate; each kind of crate has its slot."""

    def __init__(self, rng):
        self.rng = rng

    def reset(self):
        self.crane, self.kind, self.load, self.time = SLOTS // 2, self.rng.randrange(KINDS), 0, 0
        return self.crane, self.kind, self.load

    def step(self, action):
        reward, self.time = -0.05, self.time + 1
        if action < 2:
            self.crane = min(max(self.crane + (1 if action else -1), 0), SLOTS - 1)
        else:
            reward += 1.0 if self.crane == 2 * self.kind + 1 else -0.5
            self.kind, self.load = self.rng.randrange(KINDS), (self.load + 1) % 3
        return (self.crane, self.kind, self.load), reward, self.time >= 150


class QLambda:
    def __init__(self, rng, alpha=0.1, gamma=0.95, decay=0.9):
        self.rng, self.alpha, self.gamma, self.decay = rng, alpha, gamma, decay
        self.q, self.trace = {}, {}

    def values(self, state):
        return self.q.setdefault(state, [0.0, 0.0, 0.0])

    def act(self, state, epsilon=0.1):
        row = self.values(state)
        greedy = row.index(max(row))
        action = self.rng.randrange(3) if self.rng.random() < epsilon else greedy
        return action, action == greedy

    def learn(self, state, action, greedy, reward, nxt, done):
        if not greedy:
            self.trace.clear()
        self.trace[state, action] = 1.0
        error = reward + (0.0 if done else self.gamma * max(self.values(nxt))) - self.values(state)[action]
        for (s, a), weight in list(self.trace.items()):
            self.q[s][a] += self.alpha * error * weight
            weight *= self.gamma * self.decay
            if weight < 0.01:
                del self.trace[s, a]
            else:
                self.trace[s, a] = weight
        return error


def main(steps=600_000):
    rng = random.Random(33)
    start = time.time()
    display = Display()
    display.start()
    depot, agent = Depot(rng), QLambda(rng)
    state, total = depot.reset(), 0.0
    for t in range(steps):
        action, greedy = agent.act(state)
        nxt, reward, done = depot.step(action)
        error = agent.learn(state, action, greedy, reward, nxt, done)
        total += reward
        if t % 100 == 0:
            display.post("error", error)
        if done:
            display.post("return", total)
            agent.trace.clear()
            nxt, total = depot.reset(), 0.0
        state = nxt
    seconds = time.time() - start
    display.close()
    print(f"env_steps={steps} updates={steps} seconds={seconds:.2f}")


if __name__ == "__main__":
    main()
