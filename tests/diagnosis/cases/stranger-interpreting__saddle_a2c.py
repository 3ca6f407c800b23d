"""Advantage actor-critic for a scheduling game with illegal moves, 32 games at a time."""
import math
import os
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Setup:
    games: int = 32
    slots: int = 20
    horizon: int = 16
    rounds: int = 360
    seed: int = 5


class Scheduler:
    """Every move puts a job of some length on one of the free slots; slots free up over time."""

    def __init__(self, cfg):
        self.cfg, self.rng = cfg, np.random.default_rng(cfg.seed)
        self.left = self.rng.integers(0, 6, (cfg.games, cfg.slots)).astype(np.float32)
        self.left[:, 0] = 0
        self.job = self.rng.integers(1, 9, cfg.games).astype(np.float32)
        self.speed = self.rng.uniform(0.5, 1.5, (cfg.games, cfg.slots)).astype(np.float32)

    def observe(self):
        free = self.left <= 0
        free[~free.any(1), 0] = True
        return np.concatenate([self.left / 8, self.speed, self.job[:, None] / 8], 1), free

    def step(self, moves):
        rows = np.arange(self.cfg.games)
        cost = self.job / self.speed[rows, moves]
        self.left[rows, moves] += cost
        self.left = np.maximum(self.left - 0.6, 0)
        self.job = self.rng.integers(1, 9, self.cfg.games).astype(np.float32)
        over = self.rng.random(self.cfg.games) < 0.02
        self.left[over] = 0
        return (-cost / 8).astype(np.float32), over.astype(np.float32)


class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(2 * cfg.slots + 1, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh())
        self.pi, self.v = nn.Linear(96, cfg.slots), nn.Linear(96, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.pi(h), self.v(h).squeeze(-1)


class Player:
    def __init__(self, cfg, net):
        self.cfg, self.net = cfg, net
        self.dice, self.rng = random.Random(cfg.seed), np.random.default_rng(cfg.seed + 1)

    def choose(self, obs, free):
        with torch.no_grad():
            scores = self.net(torch.from_numpy(obs))[0].numpy()
        if FIXED:
            return np.where(free, scores + self.rng.gumbel(size=scores.shape), -np.inf).argmax(1)
        return np.array([self.pick(row, ok) for row, ok in zip(scores.tolist(), free.tolist())])

    def pick(self, row, ok):
        allowed = [a for a in range(len(row)) if ok[a]]
        top = max(row[a] for a in allowed)
        weights = {a: math.exp(row[a] - top) for a in allowed}
        total = sum(weights.values())
        ball, seen = self.dice.random(), 0.0
        for a in allowed:
            seen += weights[a] / total
            if ball <= seen:
                return a
        return allowed[-1]


def learn(cfg, net, opt, store, tail):
    obs, free, act, rew, end = (np.stack(x) for x in zip(*store))
    with torch.no_grad():
        ret = net(torch.from_numpy(tail))[1].numpy()
    goals = np.zeros_like(rew)
    for t in reversed(range(cfg.horizon)):
        ret = rew[t] + 0.97 * (1 - end[t]) * ret
        goals[t] = ret
    scores, value = net(torch.from_numpy(obs))
    logp = torch.log_softmax(scores.masked_fill(~torch.from_numpy(free), -1e9), -1)
    goals = torch.from_numpy(goals)
    taken = logp.gather(-1, torch.from_numpy(act)[..., None]).squeeze(-1)
    loss = -(taken * (goals - value.detach())).mean() + 0.5 * (value - goals).pow(2).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()
    opt.zero_grad(), loss.backward()
    opt.step()


def main(cfg):
    torch.manual_seed(cfg.seed), torch.set_num_threads(1)
    env, net = Scheduler(cfg), Net(cfg)
    player, opt = Player(cfg, net), torch.optim.Adam(net.parameters(), 7e-4)
    steps, start = 0, time.perf_counter()
    for _ in range(cfg.rounds):
        store = []
        for _ in range(cfg.horizon):
            obs, free = env.observe()
            moves = player.choose(obs, free)
            store.append((obs, free, moves, *env.step(moves)))
            steps += cfg.games
        learn(cfg, net, opt, store, env.observe()[0])
    print(f"env_steps={steps} updates={cfg.rounds} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main(Setup())
