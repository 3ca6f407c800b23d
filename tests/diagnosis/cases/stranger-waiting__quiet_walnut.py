"""Actor-critic that learns to set a balloon down on a pad, under a curriculum of gusts.
The curriculum sits in a hub, because the viewer (a second window) shows the stage we are at.
"""
import itertools
import math
import os
import random
import time
from multiprocessing.managers import BaseManager

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

TOTAL_STEPS = 25000
EPISODES_PER_UPDATE = 8
GAMMA = 0.98
STAGES = [dict(gust=0.0, pad=3.0), dict(gust=0.3, pad=2.5), dict(gust=0.6, pad=2.0), dict(gust=1.0, pad=1.5)]


class Curriculum:
    def __init__(self):
        self.stage, self.recent = 0, []

    def gust(self):
        return STAGES[self.stage]["gust"]

    def pad(self):
        return STAGES[self.stage]["pad"]

    def report(self, landed):
        self.recent = (self.recent + [landed])[-40:]
        if len(self.recent) == 40 and sum(self.recent) > 26 and self.stage < len(STAGES) - 1:
            self.stage, self.recent = self.stage + 1, []


class Hub(BaseManager):
    """Keeps the curriculum for all windows."""

Hub.register("Curriculum", Curriculum)


class Balloon:
    """Height and drift of a balloon; actions: vent, nothing, burn, lean left, lean right."""

    def __init__(self, curriculum, limit=80):
        self.curriculum, self.limit = curriculum, limit

    def reset(self):
        self.x, self.vx = random.uniform(-4, 4), 0.0
        self.y, self.vy, self.t = random.uniform(6, 9), 0.0, 0
        self.drawn = self.curriculum.gust(), self.curriculum.pad()
        return self.observe(*self.drawn)

    def observe(self, gust, pad):
        return [self.x / 5, self.vx, self.y / 9, self.vy, gust, pad / 3, self.t / self.limit]

    def current(self):
        if FIXED:
            return self.drawn
        return self.curriculum.gust(), self.curriculum.pad()

    def step(self, action):
        gust, pad = self.current()
        self.t += 1
        wind = gust * (0.6 * math.sin(0.2 * self.t) + random.gauss(0, 0.5))
        before = abs(self.x) + self.y
        self.vy += (-0.06, 0.0, 0.06, 0.0, 0.0)[action] - 0.02 - 0.04 * self.vy
        self.vx += (0.0, 0.0, 0.0, -0.06, 0.06)[action] + 0.03 * wind - 0.04 * self.vx
        self.x, self.y = self.x + self.vx, self.y + self.vy
        reward = 0.1 * (before - abs(self.x) - self.y)
        done = self.y <= 0 or self.t >= self.limit or abs(self.x) > 12 or self.y > 14
        if done:
            landed = self.y <= 0 and abs(self.x) < pad and self.vy > -0.6
            reward += 2.0 if landed else -1.0
            self.curriculum.report(landed)
        return self.observe(gust, pad), reward, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.actor, self.critic = nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x):
        z = self.body(x)
        return self.actor(z), self.critic(z).squeeze(-1)

    @torch.no_grad()
    def act(self, obs):
        logits = self.actor(self.body(torch.tensor(obs)))
        return random.choices(range(5), weights=torch.softmax(logits, -1).tolist())[0]


def update(model, optimizer, obs, actions, returns):
    logits, values = model(obs)
    logp = torch.log_softmax(logits, -1)
    advantage = (returns - values.detach()) / returns.std()
    policy_loss = -(logp.gather(1, actions[:, None]).squeeze(1) * advantage).mean()
    loss = policy_loss + 0.5 * (returns - values).pow(2).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train(env, model, optimizer):
    steps, updates, scores = 0, 0, []
    while steps < TOTAL_STEPS:
        obs_log, action_log, return_log = [], [], []
        for _ in range(EPISODES_PER_UPDATE):
            obs, rewards, done = env.reset(), [], False
            while not done:
                action = model.act(obs)
                obs_log.append(obs), action_log.append(action)
                obs, reward, done = env.step(action)
                rewards.append(reward)
            steps += len(rewards)
            scores.append(sum(rewards))
            tail = itertools.accumulate(reversed(rewards), lambda later, reward: reward + GAMMA * later)
            return_log += reversed(list(tail))
        update(model, optimizer, torch.tensor(obs_log), torch.tensor(action_log), torch.tensor(return_log))
        updates += 1
    return steps, updates, scores


if __name__ == "__main__":
    random.seed(11), np.random.seed(11), torch.manual_seed(11)
    with Hub() as hub:
        curriculum = hub.Curriculum()
        env, model = Balloon(curriculum), ActorCritic()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        start = time.perf_counter()
        steps, updates, scores = train(env, model, optimizer)
        seconds = time.perf_counter() - start
        print("gusts mastered up to", curriculum.gust(), "mean score", round(float(np.mean(scores[-50:])), 3))
    print(f"env_steps={steps} updates={updates} seconds={seconds:.2f}")
