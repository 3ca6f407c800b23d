"""DQN on a small arena with beacons; the episodes of every round are played by a pool of processes."""
import multiprocessing as mp
import os
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SEED = 11
ROUNDS = 45
EPISODES = 4
STEPS = 200
UPDATES = 40
BATCH = 64
GAMMA = 0.98
BEACONS = 10
OBS = 4 + 2 * BEACONS
MOVES = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]], dtype=np.float64)


class Arena:
    def __init__(self, rng):
        self.beacons = rng.uniform(-1, 1, (BEACONS, 2))
        self.pos = rng.uniform(-1, 1, 2)
        self.vel = np.zeros(2)

    def observe(self):
        return np.concatenate((self.pos, self.vel, (self.beacons - self.pos).ravel())).astype(np.float32)

    def step(self, action):
        self.vel = 0.8 * self.vel + 0.05 * MOVES[action]
        self.pos = np.clip(self.pos + self.vel, -1.0, 1.0)
        reward = -float(np.abs(self.beacons[0] - self.pos).sum())
        return self.observe(), reward


class Memory:
    def __init__(self, size):
        self.obs = np.zeros((size, OBS), dtype=np.float32)
        self.next_obs = np.zeros((size, OBS), dtype=np.float32)
        self.action = np.zeros(size, dtype=np.int64)
        self.reward = np.zeros(size, dtype=np.float32)
        self.size, self.at, self.count = size, 0, 0

    def add(self, obs, actions, rewards):
        n = len(actions)
        index = (self.at + np.arange(n)) % self.size
        self.obs[index], self.next_obs[index] = obs[:-1], obs[1:]
        self.action[index], self.reward[index] = actions, rewards
        self.at = (self.at + n) % self.size
        self.count = min(self.count + n, self.size)

    def sample(self, rng, n):
        i = rng.integers(0, self.count, n)
        return [torch.from_numpy(x[i]) for x in (self.obs, self.action, self.reward, self.next_obs)]


def mlp():
    return nn.Sequential(nn.Linear(OBS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, len(MOVES)))


class Trainer:
    KEPT_HERE = ("pool", "q", "target", "optimizer") + (("memory",) if FIXED else ())

    def __init__(self, workers=2):
        self.pool = mp.Pool(workers)
        self.rng = np.random.default_rng(SEED)
        self.q, self.target = mlp(), mlp()
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.memory = Memory(40_000)
        self.epsilon = 1.0
        self.returns = []
        self.sync()

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in self.KEPT_HERE}

    def sync(self):
        self.target.load_state_dict(self.q.state_dict())
        self.weights = [p.detach().numpy().copy() for p in self.q.parameters()]

    def greedy(self, obs):
        w1, b1, w2, b2, w3, b3 = self.weights
        h = np.maximum(w1 @ obs + b1, 0.0)
        h = np.maximum(w2 @ h + b2, 0.0)
        return int(np.argmax(w3 @ h + b3))

    def play(self, seed):
        rng = np.random.default_rng(seed)
        env = Arena(rng)
        obs = np.empty((STEPS + 1, OBS), dtype=np.float32)
        actions = np.empty(STEPS, dtype=np.int64)
        rewards = np.empty(STEPS, dtype=np.float32)
        obs[0] = env.observe()
        for t in range(STEPS):
            explore = rng.random() < self.epsilon
            actions[t] = rng.integers(len(MOVES)) if explore else self.greedy(obs[t])
            obs[t + 1], rewards[t] = env.step(actions[t])
        return obs, actions, rewards

    def collect(self, index):
        seeds = [SEED + 100 * index + k for k in range(EPISODES)]
        for episode in self.pool.map(self.play, seeds):
            self.memory.add(*episode)
            self.returns.append(float(episode[2].sum()))

    def learn(self):
        obs, action, reward, next_obs = self.memory.sample(self.rng, BATCH)
        with torch.no_grad():
            goal = reward + GAMMA * self.target(next_obs).max(1).values
        value = self.q(obs).gather(1, action[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    trainer = Trainer()
    trainer.collect(0)

    updates = 0
    start = time.perf_counter()
    for index in range(1, ROUNDS + 1):
        trainer.epsilon = max(0.05, 1.0 - index / 30)
        trainer.collect(index)
        for _ in range(UPDATES):
            trainer.learn()
            updates += 1
        trainer.sync()
    seconds = time.perf_counter() - start

    trainer.pool.close()
    trainer.pool.join()
    print(f"return of the last episodes {np.mean(trainer.returns[-20:]):.1f}")
    print(f"env_steps={ROUNDS * EPISODES * STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
