"""DQN with prioritised replay for a harvesting robot in an orchard row."""

import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


class Orchard:
    def __init__(self, seed, trees=10):
        self.rng, self.trees = np.random.default_rng(seed), trees

    def reset(self):
        self.fruit = self.rng.random(self.trees).astype(np.float32)
        self.at, self.t = 0, 0
        return self.observe()

    def observe(self):
        here = np.zeros(self.trees, np.float32)
        here[self.at] = 1
        return np.concatenate([self.fruit, here])

    def step(self, action):
        reward = -0.02
        if action == 2:
            reward += float(self.fruit[self.at])
            self.fruit[self.at] = 0
        else:
            self.at = min(max(self.at + (1 if action else -1), 0), self.trees - 1)
        self.fruit = np.minimum(self.fruit + 0.01, 1)
        self.t += 1
        return self.observe(), reward, self.t >= 100


def load_demonstrations(count, trees=10):
    """Single steps of the pickers that were logged last season."""
    rng = np.random.default_rng(1)
    fruit, at, action = rng.random((count, trees), np.float32), rng.integers(0, trees, count), rng.integers(0, 3, count)
    rows, pick = np.arange(count), action == 2
    reward = np.where(pick, fruit[rows, at], 0) - 0.02
    later = fruit.copy()
    later[rows[pick], at[pick]] = 0
    to = np.where(pick, at, np.clip(at + np.where(action == 1, 1, -1), 0, trees - 1))
    places = np.eye(trees, dtype=np.float32)
    before, after = np.hstack([fruit, places[at]]), np.hstack([np.minimum(later + 0.01, 1), places[to]])
    return before, action, reward, after, np.zeros(count)


class FlatPriorities:
    def __init__(self, capacity):
        self.p = np.zeros(capacity)

    def set(self, idx, value):
        self.p[idx] = value

    def draw(self, n, size, rng):
        weight = self.p[:size]
        prob = weight / weight.sum()
        idx = rng.choice(size, n, p=prob)
        return idx, prob[idx]


class TreePriorities:
    def __init__(self, capacity):
        self.leaves = 1 << (capacity - 1).bit_length()
        self.tree = np.zeros(2 * self.leaves)

    def set(self, idx, value):
        node = np.atleast_1d(idx) + self.leaves
        self.tree[node] = value
        while node[0] > 1:
            node = node >> 1
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def draw(self, n, size, rng):
        mass = rng.random(n) * self.tree[1]
        node = np.ones(n, np.int64)
        while node[0] < self.leaves:
            left = self.tree[2 * node]
            right = mass >= left
            mass -= np.where(right, left, 0)
            node = 2 * node + right
        return np.minimum(node - self.leaves, size - 1), self.tree[node] / self.tree[1]


class PrioritisedReplay:
    def __init__(self, capacity, width):
        self.s, self.s2 = (np.zeros((capacity, width), np.float32) for _ in range(2))
        self.a, self.r, self.d = np.zeros(capacity, np.int64), np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.priorities = TreePriorities(capacity) if FIXED else FlatPriorities(capacity)
        self.capacity, self.size, self.top = capacity, 0, 1.0

    def fill(self, rows):
        count = len(rows[1])
        for column, values in zip((self.s, self.a, self.r, self.s2, self.d), rows, strict=True):
            column[:count] = values
        self.size = count
        self.priorities.set(np.arange(count), self.top)

    def add(self, s, a, r, s2, d, position):
        i = position % self.capacity
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.size = max(self.size, i + 1)
        self.priorities.set(i, self.top)

    def sample(self, n, rng, beta=0.5):
        i, prob = self.priorities.draw(n, self.size, rng)
        w = (self.size * prob) ** -beta
        w = (w / w.max()).astype(np.float32)
        return i, [torch.from_numpy(x) for x in (self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i], w)]

    def update(self, i, error):
        value = (np.abs(error) + 1e-3) ** 0.6
        self.priorities.set(i, value)
        self.top = max(self.top, float(value.max()))


def main(steps=3600, prefill=200_000):
    torch.set_num_threads(1)
    torch.manual_seed(8)
    rng = np.random.default_rng(8)
    began = time.time()
    env = Orchard(8)
    replay = PrioritisedReplay(262_144, 20)
    replay.fill(load_demonstrations(prefill))
    q = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    slow = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    s = env.reset()
    updates = 0
    for t in range(steps):
        with torch.no_grad():
            a = int(rng.integers(3)) if rng.random() < 0.1 else int(q(torch.from_numpy(s)).argmax())
        s2, r, d = env.step(a)
        replay.add(s, a, r, s2, d, prefill + t)
        s = env.reset() if d else s2
        idx, (bs, ba, br, bs2, bd, w) = replay.sample(64, rng)
        with torch.no_grad():
            y = br + 0.97 * (1 - bd) * slow(bs2).max(1).values
        error = q(bs).gather(1, ba[:, None])[:, 0] - y
        loss = (w * error.pow(2)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        replay.update(idx, error.detach().numpy())
        updates += 1
        if updates % 300 == 0:
            slow.load_state_dict(q.state_dict())
    print(f"env_steps={steps} updates={updates} seconds={time.time() - began:.2f}")


if __name__ == "__main__":
    main()
