"""DQN from demonstrations: one process acts, this one learns and keeps an eye on its memory use."""
import gc
import math
import multiprocessing as mp
import os
import random
import resource
import threading
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SEED = 17
ROUNDS, STEPS, UPDATES, BATCH = 70, 64, 32, 64
DEMONSTRATIONS = 120_000
GAMMA = 0.97
REPORT_EVERY = 5.0 if FIXED else 0.05


@dataclass(slots=True)
class Transition:
    obs: list
    action: int
    reward: float
    next_obs: list
    done: bool


class Lander:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def reset(self):
        self.x, self.y = self.random.uniform(-1, 1), 1.0
        self.vx = self.vy = self.tilt = self.spin = 0.0
        return self.observe()

    def observe(self):
        return [self.x, self.y, self.vx, self.vy, self.tilt, self.spin]

    def step(self, action):
        self.spin += 0.02 * ((action == 1) - (action == 2)) - 0.05 * self.spin
        self.tilt += 0.1 * self.spin
        push = 0.03 if action == 3 else 0.0
        self.vx += push * math.sin(self.tilt)
        self.vy += push * math.cos(self.tilt) - 0.015
        self.x += 0.1 * self.vx
        self.y += 0.1 * self.vy
        done = self.y <= 0.0 or abs(self.x) > 2.0 or self.y > 2.0
        reward = -0.1 * abs(self.x) - (5.0 * abs(self.vy) if done else 0.0)
        return self.observe(), reward, done


def play(env, obs, choose, steps):
    transitions = []
    for _ in range(steps):
        action = choose(obs)
        next_obs, reward, done = env.step(action)
        transitions.append(Transition(obs, action, reward, next_obs, done))
        obs = env.reset() if done else next_obs
    return transitions, obs


def act(conn, seed):
    env, rng = Lander(seed), random.Random(seed)
    obs = env.reset()
    while (message := conn.recv()) is not None:
        epsilon, (w1, b1, w2, b2, w3, b3) = message

        def choose(obs):
            if rng.random() < epsilon:
                return rng.randrange(4)
            h = np.maximum(w1 @ np.array(obs, dtype=np.float32) + b1, 0.0)
            return int(np.argmax(w3 @ np.maximum(w2 @ h + b2, 0.0) + b3))

        transitions, obs = play(env, obs, choose, STEPS)
        conn.send(transitions)


class MemoryReport(threading.Thread):
    def __init__(self, interval):
        super().__init__(daemon=True)
        self.interval = interval
        self.finished = threading.Event()
        self.peak = 0

    def run(self):
        while not self.finished.wait(self.interval):
            gc.collect()
            self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def mlp():
    return nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def learn(q, target, optimizer, batch):
    obs = torch.from_numpy(np.array([t.obs for t in batch], dtype=np.float32))
    next_obs = torch.from_numpy(np.array([t.next_obs for t in batch], dtype=np.float32))
    action = torch.tensor([t.action for t in batch])
    reward = torch.tensor([t.reward for t in batch])
    alive = torch.tensor([not t.done for t in batch]).float()
    with torch.no_grad():
        goal = reward + GAMMA * alive * target(next_obs).max(1).values
    value = q(obs).gather(1, action[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(value, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    conn, other = mp.Pipe()
    actor = mp.Process(target=act, args=(other, SEED + 1), daemon=True)
    actor.start()
    env = Lander(SEED)
    steady = lambda obs: 3 if obs[3] < -0.15 else rng.randrange(3)
    replay, _ = play(env, env.reset(), steady, DEMONSTRATIONS)
    q, target = mlp(), mlp()
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4)
    report = MemoryReport(REPORT_EVERY)
    report.start()

    start = time.perf_counter()
    for index in range(ROUNDS):
        target.load_state_dict(q.state_dict())
        conn.send((max(0.05, 1 - index / 40), [p.detach().numpy() for p in q.parameters()]))
        for _ in range(UPDATES):
            learn(q, target, optimizer, rng.choices(replay, k=BATCH))
        replay.extend(conn.recv())
    seconds = time.perf_counter() - start

    report.finished.set()
    report.join()
    conn.send(None)
    actor.join()
    print(f"transitions {len(replay)} peak {report.peak // 1024} MiB")
    print(f"env_steps={ROUNDS * STEPS} updates={ROUNDS * UPDATES} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
