"""Deep Q-learning with an episodic elliptical novelty bonus on a sparse corridor world."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
FEATURES = 128


class Corridors:
    """A grid of rooms seen through a random lens; the reward is in the far corner."""

    def __init__(self, seed, side=12):
        self.side = side
        self.lens = np.random.default_rng(seed).normal(0, 1, (side * side, 32)).astype(np.float32)
        self.moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def reset(self):
        self.y = self.x = self.t = 0
        return self.lens[0]

    def step(self, action):
        dy, dx = self.moves[action]
        self.t, self.y = self.t + 1, min(max(self.y + dy, 0), self.side - 1)
        self.x = min(max(self.x + dx, 0), self.side - 1)
        won = self.y + self.x == 2 * self.side - 2
        return self.lens[self.y * self.side + self.x], float(won), won or self.t >= 200


class Encoder:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, FEATURES), nn.Tanh())

    @torch.no_grad()
    def embed(self, obs):
        return self.net(torch.from_numpy(obs)).numpy().astype(np.float64)


class Novelty:
    """Bonus of a state: phi' C^-1 phi, where C holds the states of this episode."""

    def __init__(self, dim, ridge=0.1):
        self.prior = np.eye(dim) * ridge
        self.begin()

    def begin(self):
        self.cov, self.inv = self.prior.copy(), self.prior / self.prior[0, 0] ** 2

    def visit(self, phi):
        u = self.inv @ phi
        bonus = float(phi @ u)
        if FIXED:
            self.inv -= np.outer(u, u / (1.0 + bonus))
        else:
            self.cov += np.outer(phi, phi)
            self.inv = np.linalg.inv(self.cov)
        return min(bonus, 1.0)


class Replay:
    def __init__(self, size):
        self.s, self.s2 = np.zeros((size, 32), np.float32), np.zeros((size, 32), np.float32)
        self.a, self.r, self.d, self.n = np.zeros(size, np.int64), np.zeros(size, np.float32), np.zeros(size, np.float32), 0

    def add(self, s, a, r, s2, d):
        i = self.n % len(self.r)
        self.s[i], self.a[i], self.r[i], self.s2[i], self.d[i] = s, a, r, s2, d
        self.n += 1

    def sample(self, rng, k):
        idx = rng.integers(0, min(self.n, len(self.r)), k)
        return [torch.from_numpy(x[idx]) for x in (self.s, self.a, self.r, self.s2, self.d)]


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))
        self.slow = copy.deepcopy(self.q)
        self.opt = torch.optim.Adam(self.q.parameters(), 5e-4)

    @torch.no_grad()
    def act(self, obs, rng, eps):
        return int(rng.integers(4)) if rng.random() < eps else int(self.q(torch.from_numpy(obs)).argmax())

    def fit(self, s, a, r, s2, d):
        with torch.no_grad():
            y = r + 0.98 * (1 - d) * self.slow(s2).amax(-1)
        loss = nn.functional.smooth_l1_loss(self.q(s).gather(-1, a[:, None]).squeeze(-1), y)
        self.opt.zero_grad(), loss.backward()
        self.opt.step()


def main(total=3000):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    rng, env, agent, encoder = np.random.default_rng(8), Corridors(8), Agent(), Encoder()
    novelty, replay, updates = Novelty(FEATURES), Replay(10_000), 0
    obs, start = env.reset(), time.perf_counter()
    for step in range(total):
        action = agent.act(obs, rng, max(0.05, 1 - step / 2000))
        nxt, reward, done = env.step(action)
        reward += 0.2 * novelty.visit(encoder.embed(nxt))
        replay.add(obs, action, reward, nxt, float(done))
        obs = env.reset() if done else nxt
        if done:
            novelty.begin()
        if step >= 200 and step % 2 == 0:
            agent.fit(*replay.sample(rng, 64))
            updates += 1
        if step % 400 == 0:
            agent.slow.load_state_dict(agent.q.state_dict())
    print(f"env_steps={total} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
