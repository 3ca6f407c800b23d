"""Double DQN in a cave maze; the reward is shaped with the walking distance to the exit."""
import os
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SIDE = 15
DIRS = [(0, 1), (1, 0), (0, -1), (-1, 0)]


class Cave:
    def __init__(self, seed, limit=200):
        self.rng = np.random.default_rng(seed)
        self.limit = limit

    def reset(self):
        while True:
            rock = self.rng.random((SIDE, SIDE)) < 0.28
            rock[0, 0] = rock[-1, -1] = False
            self.rock = rock.tolist()
            self.exit = (SIDE - 1, SIDE - 1)
            if distances_from(self.rock, self.exit).get((0, 0)) is not None:
                break
        self.here, self.t = (0, 0), 0
        return self.view()

    def view(self):
        r, c = self.here
        near = [0 <= r + i < SIDE and 0 <= c + j < SIDE and not self.rock[r + i][c + j]
                for i in (-1, 0, 1) for j in (-1, 0, 1)]
        return np.array(near + [r / SIDE, c / SIDE, self.t / self.limit], np.float32)

    def step(self, a):
        r, c = self.here[0] + DIRS[a][0], self.here[1] + DIRS[a][1]
        if 0 <= r < SIDE and 0 <= c < SIDE and not self.rock[r][c]:
            self.here = (r, c)
        self.t += 1
        out = self.here == self.exit
        return self.view(), 1.0 if out else -0.01, out, self.t >= self.limit


def distances_from(rock, origin):
    found, frontier = {origin: 0}, deque([origin])
    while frontier:
        r, c = cell = frontier.popleft()
        for dr, dc in DIRS:
            nxt = (r + dr, c + dc)
            if nxt not in found and 0 <= nxt[0] < SIDE and 0 <= nxt[1] < SIDE and not rock[nxt[0]][nxt[1]]:
                found[nxt] = found[cell] + 1
                frontier.append(nxt)
    return found


class Shaping:
    """Potential-based: gamma * phi(s') - phi(s), phi = -distance to the exit."""

    def __init__(self, env, gamma):
        self.env, self.gamma = env, gamma
        self.table, self.of = None, None

    def potential(self, cell):
        if FIXED:
            if self.of is not self.env.rock:
                self.table, self.of = distances_from(self.env.rock, self.env.exit), self.env.rock
            return -0.05 * self.table[cell]
        return -0.05 * distances_from(self.env.rock, cell)[self.env.exit]

    def bonus(self, before, after):
        return self.gamma * self.potential(after) - self.potential(before)


def make_net():
    return nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))


def train(total=8500, batch=64, gamma=0.98, seed=2):
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    env = Cave(seed)
    shaping = Shaping(env, gamma)
    net, lagged = make_net(), make_net()
    lagged.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4, fused=True)
    store, n, updates = np.zeros((total, 27), np.float32), 0, 0
    obs = env.reset()
    start = time.perf_counter()
    for step in range(total):
        if rng.random() < max(0.1, 1 - step / 4000):
            a = int(rng.integers(4))
        else:
            with torch.no_grad():
                a = int(net(torch.from_numpy(obs)).argmax())
        before = env.here
        nxt, reward, out, cut = env.step(a)
        reward += shaping.bonus(before, env.here)
        row = store[n]
        row[:12], row[12:24], row[24:] = obs, nxt, (a, reward, out)
        n += 1
        obs = env.reset() if out or cut else nxt
        if n >= 500 and step % 2 == 0:
            rows = torch.from_numpy(store[rng.integers(0, n, batch)])
            s, s2, act, r, end = rows[:, :12], rows[:, 12:24], rows[:, 24].long(), rows[:, 25], rows[:, 26]
            with torch.no_grad():
                pick = net(s2).argmax(1, keepdim=True)
                goal = r + gamma * (1 - end) * lagged(s2).gather(1, pick).squeeze(1)
            loss = nn.functional.smooth_l1_loss(net(s).gather(1, act[:, None]).squeeze(1), goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if updates % 250 == 0:
                lagged.load_state_dict(net.state_dict())
    return total, updates, time.perf_counter() - start


if __name__ == "__main__":
    print("env_steps=%d updates=%d seconds=%.3f" % train())
