"""DQN with hindsight relabelling on a small goal-reaching task."""
import copy
import logging
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SEED, EPISODES, HORIZON = 5, 250, 40
WARMUP, UPDATE_EVERY, BATCH, GAMMA, TAU = 400, 8, 128, 0.95, 0.02
MOVES = np.array([[0, 0], [0.06, 0], [-0.06, 0], [0, 0.06], [0, -0.06]])

log = logging.getLogger("her")


def trace(template, *values):
    if FIXED:
        log.debug(template, *values)
    else:
        log.debug(template % values)


class Field:
    """Walk to a goal on the unit square; observations are position and last drift."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.pos, self.goal = self.rng.random((2, 2))
        self.drift = np.zeros(2)
        self.t = 0
        return self.observe()

    def observe(self):
        return np.concatenate([self.pos, self.drift]).astype(np.float32)

    def step(self, action):
        self.drift = 0.5 * self.drift + self.rng.normal(0, 0.01, 2)
        self.pos = np.clip(self.pos + MOVES[action] + self.drift, 0.0, 1.0)
        self.t += 1
        trace("step %d moved to %s goal %s", self.t, self.pos, self.goal)
        return self.observe(), self.t >= HORIZON


def reached(pos, goal):
    return (np.square(pos - goal).sum(-1) < 0.08 ** 2).astype(np.float32)


class Hindsight:
    """Whole episodes in arrays; four of five samples get a goal met later on."""

    def __init__(self, episodes, seed):
        self.obs = np.zeros((episodes, HORIZON + 1, 4), np.float32)
        self.act = np.zeros((episodes, HORIZON), np.int64)
        self.goal = np.zeros((episodes, 2), np.float32)
        self.rng = np.random.default_rng(seed)
        self.full = 0

    def begin(self, obs, goal):
        self.obs[self.full, 0], self.goal[self.full] = obs, goal

    def add(self, t, act, obs):
        trace("store %d/%d action %d obs %s next %s", self.full, t, act, self.obs[self.full, t], obs)
        self.act[self.full, t], self.obs[self.full, t + 1] = act, obs

    def end(self):
        self.full += 1

    def sample(self, n):
        e = self.rng.integers(self.full, size=n)
        t = self.rng.integers(HORIZON, size=n)
        later = t + 1 + (self.rng.random(n) * (HORIZON - t)).astype(np.int64)
        relabel = self.rng.random(n) < 0.8
        goal = np.where(relabel[:, None], self.obs[e, later, :2], self.goal[e])
        obs, next_obs = self.obs[e, t], self.obs[e, t + 1]
        hit = reached(next_obs[:, :2], goal)
        both = (np.concatenate([obs, goal], 1), np.concatenate([next_obs, goal], 1))
        return [torch.from_numpy(x) for x in (*both, self.act[e, t], hit)]


class Agent:
    def __init__(self, seed):
        self.q = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
        self.target = copy.deepcopy(self.q)
        self.opt = torch.optim.Adam(self.q.parameters(), 1e-3)
        self.rng = np.random.default_rng(seed)

    @torch.no_grad()
    def act(self, obs, goal, eps):
        values = self.q(torch.from_numpy(np.concatenate([obs, goal], dtype=np.float32))).numpy()
        trace("values %s eps %.2f", values, eps)
        return int(self.rng.integers(5)) if self.rng.random() < eps else int(values.argmax())

    def update(self, batch):
        obs, next_obs, act, hit = batch
        with torch.no_grad():
            backup = hit - 1 + GAMMA * (1 - hit) * self.target(next_obs).max(1).values
        error = self.q(obs).gather(1, act[:, None]).squeeze(1) - backup
        loss = F.huber_loss(error, torch.zeros_like(error))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for p, slow in zip(self.q.parameters(), self.target.parameters()):
                slow.lerp_(p, TAU)
        trace("update errors %s", error.detach().numpy())


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    env, agent, buffer = Field(SEED), Agent(SEED), Hindsight(EPISODES, SEED)
    steps = updates = successes = 0
    start = time.perf_counter()
    for episode in range(1, EPISODES + 1):
        obs, done = env.reset(), False
        buffer.begin(obs, env.goal)
        while not done:
            action = agent.act(obs, env.goal, eps=max(0.1, 1 - steps / 4000))
            obs, done = env.step(action)
            buffer.add(env.t - 1, action, obs)
            steps += 1
            if steps > WARMUP and steps % UPDATE_EVERY == 0:
                agent.update(buffer.sample(BATCH))
                updates += 1
        buffer.end()
        successes += int(reached(env.pos, env.goal))
        if episode % 50 == 0:
            log.info("episode %d: %d of the last 50 succeeded", episode, successes)
            successes = 0
    seconds = time.perf_counter() - start
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
