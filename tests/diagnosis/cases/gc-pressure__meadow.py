"""Fitted Q iteration mixed with fresh play, over an archive of recorded matches kept as Python objects."""
import gc
import os
import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)
random.seed(17)


@dataclass
class Turn:
    obs: list
    action: int
    reward: float
    info: dict = field(default_factory=dict)


@dataclass
class Match:
    turns: list
    tags: dict


class Auction:
    """Ten rounds of bidding with a budget; the price follows the bids of the past."""

    def __init__(self):
        self.rounds = 10

    def reset(self):
        self.budget, self.price, self.t = 1.0, random.random(), 0
        return self.observe()

    def observe(self):
        return [self.budget, self.price, self.t / self.rounds, float(self.budget > self.price)]

    def step(self, action):
        bid = action * 0.25
        won = bid >= self.price and bid <= self.budget
        reward = 0.6 - self.price if won else 0.0
        self.budget -= self.price if won else 0.0
        self.price = 0.7 * self.price + 0.3 * random.random()
        self.t += 1
        return self.observe(), reward, self.t >= self.rounds, {"won": won, "bid": [bid, self.price]}


class Archive:
    def __init__(self):
        self.matches = []

    def add(self, match):
        self.matches.append(match)

    def batch(self, n):
        rows = []
        for match in random.choices(self.matches, k=n):
            i = random.randrange(len(match.turns) - 1)
            turn = match.turns[i]
            rows.append((turn.obs, match.turns[i + 1].obs, turn.action, turn.reward))
        obs, nxt, act, rew = zip(*rows)
        return torch.tensor(obs), torch.tensor(nxt), torch.tensor(act), torch.tensor(rew)


def play(env, net, eps):
    obs, done, turns = env.reset(), False, []
    while not done:
        if net is None or random.random() < eps:
            action = random.randrange(5)
        else:
            with torch.no_grad():
                action = int(net(torch.tensor(obs)).argmax())
        nxt, reward, done, info = env.step(action)
        turns.append(Turn(obs, action, reward, info))
        obs = nxt
    return Match(turns, {"eps": eps, "length": len(turns)})


def learn(net, opt, archive):
    obs, nxt, act, rew = archive.batch(128)
    with torch.no_grad():
        goal = rew + 0.99 * net(nxt).max(1).values
    loss = (net(obs).gather(1, act[:, None])[:, 0] - goal).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def tidy(scratch):
    scratch.clear()
    if not FIXED:
        gc.collect()


def main(recorded=2500, matches=28):
    env, archive = Auction(), Archive()
    for _ in range(recorded):
        archive.add(play(env, None, 1.0))
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    scratch, steps, updates = [], 0, 0
    start = time.perf_counter()
    for k in range(matches):
        match = play(env, net, 0.2)
        archive.add(match)
        scratch.append(match)
        steps += len(match.turns)
        for _ in range(50):
            learn(net, opt, archive)
            updates += 1
        tidy(scratch)
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
