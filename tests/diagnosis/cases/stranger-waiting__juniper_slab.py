"""n-step DQN on CartPole: an actor thread feeds a replay store, the main thread learns from it."""
import collections
import copy
import os
import threading
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED = 17
UPDATES, BATCH, STEPS_PER_UPDATE, WARMUP, SLACK = 1300, 64, 4, 500, 16
TOTAL_STEPS = WARMUP + UPDATES * STEPS_PER_UPDATE
N_STEP, GAMMA, SYNC_EVERY = 3, 0.99, 100


class SharedReplay:
    """Replay store for one writer and one reader that keep pace with each other.

    The writer may be at most SLACK items ahead of what the reader has asked for, and
    the reader gets a batch only when enough new items have come in.
    """

    def __init__(self, capacity):
        self.obs = np.zeros((capacity, 4), np.float32)
        self.next_obs = np.zeros((capacity, 4), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.ret = np.zeros(capacity, np.float32)
        self.discount = np.zeros(capacity, np.float32)
        self.rng = np.random.default_rng(SEED)
        self.changed = threading.Condition()
        self.added = self.sampled = 0

    def due(self):
        return WARMUP + self.sampled * STEPS_PER_UPDATE

    def add(self, obs, act, ret, next_obs, discount):
        with self.changed:
            while self.added >= self.due() + SLACK:
                self.changed.wait(timeout=0.02)
            i = self.added % len(self.act)
            self.obs[i], self.next_obs[i] = obs, next_obs
            self.act[i], self.ret[i], self.discount[i] = act, ret, discount
            self.added += 1
            if FIXED:
                self.changed.notify()

    def sample(self, n):
        with self.changed:
            while self.added < self.due():
                self.changed.wait(timeout=0.02)
            rows = self.rng.integers(min(self.added, len(self.act)), size=n)
            batch = [x[rows] for x in (self.obs, self.act, self.ret, self.next_obs, self.discount)]
            self.sampled += 1
            if FIXED:
                self.changed.notify()
        return [torch.from_numpy(x) for x in batch]


class NStep:
    """Turns single steps into n-step transitions."""

    def __init__(self, replay):
        self.replay, self.window = replay, collections.deque()

    def push(self, obs, act, rew, next_obs, terminated, cut):
        self.window.append((obs, act, rew))
        if len(self.window) == N_STEP or cut:
            while self.window:
                ret = sum(r * GAMMA ** k for k, (_, _, r) in enumerate(self.window))
                discount = 0.0 if terminated else GAMMA ** len(self.window)
                first = self.window.popleft()
                self.replay.add(first[0], first[1], ret, next_obs, discount)
                if not cut:
                    break


class Actor(threading.Thread):
    def __init__(self, q, replay):
        super().__init__(daemon=True)
        self.q, self.replay, self.folder = q, replay, NStep(replay)
        self.env = gym.make("CartPole-v1")
        self.rng = np.random.default_rng(SEED)
        self.steps = 0

    @torch.no_grad()
    def choose(self, obs):
        eps = max(0.05, 1 - self.replay.added / 3000)
        if self.rng.random() < eps:
            return int(self.rng.integers(2))
        return int(self.q(torch.from_numpy(obs)).argmax())

    def run(self):
        obs, _ = self.env.reset(seed=SEED)
        for _ in range(TOTAL_STEPS):
            act = self.choose(obs)
            next_obs, rew, terminated, truncated, _ = self.env.step(act)
            self.steps += 1
            cut = terminated or truncated
            self.folder.push(obs, act, rew, next_obs, terminated, cut)
            obs = self.env.reset()[0] if cut else next_obs


class Learner:
    def __init__(self, q, replay):
        self.q, self.target, self.replay = q, copy.deepcopy(q), replay
        self.opt = torch.optim.Adam(q.parameters(), 5e-4)
        self.updates = 0

    def update(self):
        obs, act, ret, next_obs, discount = self.replay.sample(BATCH)
        with torch.no_grad():
            backup = ret + discount * self.target(next_obs).max(1).values
        taken = self.q(obs).gather(1, act[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(taken, backup)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % SYNC_EVERY == 0:
            self.target.load_state_dict(self.q.state_dict())
        return loss.detach()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    q = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    replay = SharedReplay(20_000)
    actor, learner = Actor(q, replay), Learner(q, replay)
    start = time.perf_counter()
    actor.start()
    while learner.updates < UPDATES:
        loss = learner.update()
        if learner.updates % 200 == 0:
            print(f"update {learner.updates} loss {loss.item():.4f} items {replay.added}")
    actor.join()
    seconds = time.perf_counter() - start
    print(f"env_steps={actor.steps} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
