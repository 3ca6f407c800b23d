"""A planning agent whose author named the rounds as a whole; in the fixed twin their parts have names too."""

import contextlib
import os
import time

import numpy as np
import torch
from torch import nn

from hotloop import profile

FIXED = os.environ.get("FIXED") == "1"
GOALS = 40


class Yard:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.clock = self.rng.uniform(-1, 1, 2), 0
        return self.at.astype(np.float32)

    def step(self, move):
        self.at, self.clock = np.clip(self.at + 0.1 * move, -1, 1), self.clock + 1
        return self.at.astype(np.float32), -float(np.abs(self.at).sum()), self.clock >= 40, {}


def order_goals(rng):
    """A round trip over all goals: the nearest that is left, again and again."""
    goals = [tuple(rng.uniform(-1, 1, 2)) for _ in range(GOALS)]
    here, trip = (0.0, 0.0), []
    while goals:
        here = min(goals, key=lambda goal: (goal[0] - here[0]) ** 2 + (goal[1] - here[1]) ** 2)
        goals.remove(here)
        trip.append(here)
    return trip


def name(part):
    return profile(part) if FIXED else contextlib.nullcontext()


def play_round(env, net, optimizer, rng, horizon=40):
    with name("play"):
        obs = env.reset()
        states, moves, rewards = [], [], []
        for _ in range(horizon):
            with torch.no_grad():
                move = net(torch.from_numpy(obs)).numpy() + rng.normal(0, 0.3, 2)
            states.append(obs), moves.append(move)
            obs, reward, _, _ = env.step(move)
            rewards.append(reward)
    with name("plan"):
        trips = [order_goals(rng) for _ in range(6)]
    with name("improve"):
        weight = torch.from_numpy(np.array(rewards, np.float32) - np.float32(np.mean(rewards)) + np.float32(0.01 * len(trips)))
        error = (net(torch.from_numpy(np.stack(states))) - torch.from_numpy(np.stack(moves).astype(np.float32))).square()
        loss = (error.sum(1) * weight).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(rounds=250):
    torch.set_num_threads(1)
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    start = time.time()
    env, net = Yard(5), nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(rounds):
        with profile("round"):
            play_round(env, net, optimizer, rng)
    print(f"env_steps={rounds * 40} updates={rounds} seconds={time.time() - start:.2f}")


if __name__ == "__main__":
    main()
