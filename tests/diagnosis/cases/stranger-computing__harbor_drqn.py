"""Recurrent Q-learning with whole-episode replay on a memory corridor."""
import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    n_envs: int = 8
    iterations: int = 34
    steps_per_iter: int = 140
    updates_per_iter: int = 2
    batch_episodes: int = 32
    max_episode_steps: int = 120
    hidden: int = 64
    gamma: float = 0.97
    seed: int = 3


class MemoryCorridor:
    """A cue is shown on the first step; the turn at the end has to match it."""

    def __init__(self, limit, rng):
        self.limit, self.rng = limit, rng

    def reset(self):
        self.length = self.rng.randint(4, 9)
        self.pos, self.t, self.cue = 0, 0, self.rng.choice((-1.0, 1.0))
        return self._obs()

    def _obs(self):
        return (self.cue if self.t == 0 else 0.0, self.pos / 9.0, float(self.pos == self.length),
                self.rng.random() - 0.5)

    def step(self, action):
        self.t += 1
        reward, done = -0.01, False
        if action == 0:
            self.pos = min(self.pos + 1, self.length)
        elif self.pos == self.length:
            done, reward = True, 1.0 if (action == 1) == (self.cue > 0) else -1.0
        if self.rng.random() < 0.06:
            done = True
        return self._obs(), reward, done or self.t >= self.limit


class EpisodeStore:
    def __init__(self, cfg, rng):
        self.cfg, self.rng, self.episodes = cfg, rng, []

    def add(self, obs, act, rew):
        self.episodes.append((np.asarray(obs, np.float32), np.asarray(act, np.int64), np.asarray(rew, np.float32)))
        if len(self.episodes) > 2000:
            self.episodes.pop(0)

    def collate(self, picked):
        longest = max(len(e[1]) for e in picked)
        steps = longest if FIXED else self.cfg.max_episode_steps
        b = len(picked)
        obs = np.zeros((steps + 1, b, 4), np.float32)
        act = np.zeros((steps, b), np.int64)
        rew, mask, last = (np.zeros((steps, b), np.float32) for _ in range(3))
        for i, (o, a, r) in enumerate(picked):
            n = len(a)
            obs[: n + 1, i], act[:n, i], rew[:n, i], mask[:n, i], last[n - 1, i] = o, a, r, 1.0, 1.0
        return tuple(torch.from_numpy(x) for x in (obs, act, rew, mask, last))

    def sample(self):
        return self.collate(self.rng.sample(self.episodes, self.cfg.batch_episodes))


class RecurrentQ(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.enc = nn.Linear(4, hidden)
        self.rnn = nn.GRU(hidden, hidden)
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, obs, state=None):
        z, state = self.rnn(torch.relu(self.enc(obs)), state)
        return self.head(z), state


class Learner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net, self.target = RecurrentQ(cfg.hidden), RecurrentQ(cfg.hidden)
        self.target.load_state_dict(self.net.state_dict())
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-4)
        self.updates = 0

    def learn(self, batch):
        obs, act, rew, mask, last = batch
        with torch.no_grad():
            nxt = self.target(obs)[0][1:].max(-1).values
            goal = rew + self.cfg.gamma * (1 - last) * nxt
        q = self.net(obs)[0][:-1].gather(-1, act.unsqueeze(-1)).squeeze(-1)
        loss = (F.smooth_l1_loss(q, goal, reduction="none") * mask).sum() / mask.sum()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.opt.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.net.state_dict())


class Collector:
    def __init__(self, cfg, rng, learner, store):
        self.cfg, self.rng, self.learner, self.store = cfg, rng, learner, store
        self.envs = [MemoryCorridor(cfg.max_episode_steps, rng) for _ in range(cfg.n_envs)]
        self.trails = [([e.reset()], [], []) for e in self.envs]
        self.state = torch.zeros(1, cfg.n_envs, cfg.hidden)

    @torch.no_grad()
    def act(self):
        obs = torch.tensor([t[0][-1] for t in self.trails]).unsqueeze(0)
        q, self.state = self.learner.net(obs, self.state)
        return [self.rng.randrange(3) if self.rng.random() < 0.3 else a for a in q[0].argmax(-1).tolist()]

    def collect(self, steps):
        for _ in range(steps):
            for i, a in enumerate(self.act()):
                obs, act, rew = self.trails[i]
                o, r, done = self.envs[i].step(a)
                obs.append(o), act.append(a), rew.append(r)
                if done:
                    self.store.add(obs, act, rew)
                    self.trails[i] = ([self.envs[i].reset()], [], [])
                    self.state[:, i] = 0.0
        return steps * self.cfg.n_envs


def main():
    cfg = Config()
    rng = random.Random(cfg.seed)
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    store, learner = EpisodeStore(cfg, rng), Learner(cfg)
    collector = Collector(cfg, rng, learner, store)
    env_steps = 0
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        env_steps += collector.collect(cfg.steps_per_iter)
        if len(store.episodes) >= cfg.batch_episodes:
            for _ in range(cfg.updates_per_iter):
                learner.learn(store.sample())
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
