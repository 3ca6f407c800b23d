"""Independent Q-learners on a 3x3 grid of traffic lights, one learner per crossing."""
import logging
import os
import time

import numpy as np
import torch

FIXED = os.environ.get("FIXED") == "1"

SIDE = 3
CROSSINGS = SIDE * SIDE
HEADING = [(1, 0), (-1, 0), (0, -1), (0, 1)]
GREEN = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
SATURATION, LIMIT = 4.0, 40.0
STEPS, WARMUP, TRAIN_EVERY, BATCH = 7500, 200, 4, 32
GAMMA = 0.95

log = logging.getLogger("traffic")


def trace(text, *values):
    if FIXED:
        log.debug(text, *values)
    else:
        log.debug(text % values)


def routing():
    table = np.zeros((CROSSINGS * 4, CROSSINGS * 4))
    for cell in range(CROSSINGS):
        for came in range(4):
            for leave, (dr, dc) in enumerate(HEADING):
                share = 0.6 if leave == came else 0.2 if leave // 2 != came // 2 else 0.0
                r, c = cell // SIDE + dr, cell % SIDE + dc
                if 0 <= r < SIDE and 0 <= c < SIDE:
                    table[cell * 4 + came, (r * SIDE + c) * 4 + leave] = share
    return table


def inflow():
    rate = np.zeros((CROSSINGS, 4))
    for cell in range(CROSSINGS):
        for lane, (dr, dc) in enumerate(HEADING):
            r, c = cell // SIDE - dr, cell % SIDE - dc
            if not (0 <= r < SIDE and 0 <= c < SIDE):
                rate[cell, lane] = 0.9
    return rate


class TrafficGrid:
    def __init__(self, rng):
        self.rng = rng
        self.routes, self.rate = routing(), inflow()
        self.queues = rng.uniform(0, 5, (CROSSINGS, 4))
        self.phases = np.zeros(CROSSINGS, np.int64)
        self.t = 0

    def observe(self):
        return np.concatenate([self.queues / LIMIT, GREEN[self.phases][:, 1:3]], 1).astype(np.float32)

    def step(self, phases):
        pace = np.where(phases != self.phases, 0.5, 1.0)[:, None]
        flow = np.minimum(self.queues, SATURATION * pace * GREEN[phases])
        onward = (flow.ravel() @ self.routes).reshape(CROSSINGS, 4)
        queues = self.queues - flow + onward + self.rng.poisson(self.rate)
        self.queues = np.minimum(queues, LIMIT)
        self.phases = phases
        self.t += 1
        trace("t=%d queues=%s", self.t, self.queues)
        return self.observe(), (-self.queues.sum(1) / LIMIT).astype(np.float32)


class IndependentQ:
    """All learners at once: the first dimension of every weight is the crossing."""

    def __init__(self, rng, hidden=32):
        self.rng = rng
        shapes = [(6, hidden), (1, hidden), (hidden, 2), (1, 2)]
        self.weights = [(torch.randn(CROSSINGS, *s) * 0.2).requires_grad_() for s in shapes]
        self.target = [w.detach().clone() for w in self.weights]
        self.opt = torch.optim.Adam(self.weights, lr=1e-3)
        self.obs = np.zeros((STEPS + 1, CROSSINGS, 6), np.float32)
        self.action = np.zeros((STEPS, CROSSINGS), np.int64)
        self.reward = np.zeros((STEPS, CROSSINGS), np.float32)
        self.size = self.updates = 0

    def q(self, weights, x):
        w1, b1, w2, b2 = weights
        return torch.baddbmm(b2, torch.baddbmm(b1, x, w1).relu(), w2)

    @torch.no_grad()
    def act(self, obs, epsilon):
        values = self.q(self.weights, torch.from_numpy(obs)[:, None])[:, 0].numpy()
        trace("values=%s epsilon=%.3f", values, epsilon)
        explore = self.rng.random(CROSSINGS) < epsilon
        return np.where(explore, self.rng.integers(2, size=CROSSINGS), values.argmax(1))

    def remember(self, obs, action, reward, nxt):
        i = self.size
        self.obs[i], self.action[i], self.reward[i], self.obs[i + 1] = obs, action, reward, nxt
        self.size += 1

    def batch(self, array, idx):
        return torch.from_numpy(array[idx]).transpose(0, 1)

    def learn(self):
        idx = self.rng.integers(self.size, size=BATCH)
        obs, nxt = self.batch(self.obs, idx), self.batch(self.obs, idx + 1)
        action, reward = self.batch(self.action, idx), self.batch(self.reward, idx)
        with torch.no_grad():
            goal = reward + GAMMA * self.q(self.target, nxt).amax(-1)
        error = self.q(self.weights, obs).gather(-1, action[..., None]).squeeze(-1) - goal
        self.opt.zero_grad()
        error.square().mean(1).sum().backward()
        self.opt.step()
        self.updates += 1
        trace("update=%d td=%s", self.updates, error.detach().abs().mean(1).numpy())
        if self.updates % 100 == 0:
            self.target = [w.detach().clone() for w in self.weights]


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    env, agents = TrafficGrid(rng), IndependentQ(rng)
    obs, rewards = env.observe(), []
    start = time.perf_counter()
    for t in range(STEPS):
        action = agents.act(obs, max(0.05, 1.0 - t / 3000))
        nxt, reward = env.step(action)
        agents.remember(obs, action, reward, nxt)
        obs = nxt
        rewards.append(reward.mean())
        if t >= WARMUP and t % TRAIN_EVERY == 0:
            agents.learn()
    seconds = time.perf_counter() - start
    log.info("mean reward %.3f -> %.3f", np.mean(rewards[:500]), np.mean(rewards[-500:]))
    print(f"env_steps={STEPS} updates={agents.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
