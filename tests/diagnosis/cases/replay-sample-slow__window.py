"""Double DQN on LunarLander-like toy physics with stacked observations and an object replay memory."""

import os
import random
import time
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
STACK, FEATURES = 8, 12
Transition = namedtuple("Transition", "state action reward next_state done")


class LanderSim:
    def __init__(self, rng):
        self.rng = rng
        self.mix = np.random.default_rng(0).normal(0, 0.4, (6, FEATURES)).astype(np.float32)

    def reset(self):
        self.x = self.rng.normal(0, 0.5, 6).astype(np.float32)
        self.t = 0
        return np.tanh(self.x @ self.mix)

    def step(self, action):
        self.x[:3] += 0.1 * self.x[3:]
        self.x[3 + action % 3] += 0.1 if action < 3 else -0.1
        self.x[4] -= 0.02
        self.t += 1
        return np.tanh(self.x @ self.mix), -float(np.abs(self.x).mean()), self.t >= 150


class ListMemory:
    def __init__(self, capacity):
        self.items = deque(maxlen=capacity)

    def add(self, *row):
        self.items.append(Transition(*row))

    def sample(self, n):
        batch = random.sample(self.items, n)
        state = torch.stack([torch.from_numpy(np.concatenate(list(t.state))) for t in batch])
        nxt = torch.stack([torch.from_numpy(np.concatenate(list(t.next_state))) for t in batch])
        action = torch.stack([torch.tensor(t.action) for t in batch])
        reward = torch.stack([torch.tensor(t.reward, dtype=torch.float32) for t in batch])
        done = torch.stack([torch.tensor(float(t.done)) for t in batch])
        return state, action, reward, nxt, done


class ArrayMemory:
    def __init__(self, capacity):
        width = STACK * FEATURES
        self.state, self.next_state = np.zeros((capacity, width), np.float32), np.zeros((capacity, width), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward, self.done = np.zeros(capacity, np.float32), np.zeros(capacity, np.float32)
        self.capacity, self.count = capacity, 0

    def add(self, state, action, reward, next_state, done):
        i = self.count % self.capacity
        np.concatenate(state, out=self.state[i])
        np.concatenate(next_state, out=self.next_state[i])
        self.action[i], self.reward[i], self.done[i] = action, reward, done
        self.count += 1

    def sample(self, n):
        i = np.random.randint(0, min(self.count, self.capacity), n)
        return [torch.from_numpy(c[i]) for c in (self.state, self.action, self.reward, self.next_state, self.done)]


class DoubleDQN:
    def __init__(self, memory):
        self.memory = memory
        self.online, self.target = self.build(), self.build()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.AdamW(self.online.parameters(), lr=1e-3)
        self.updates = 0

    @staticmethod
    def build():
        return nn.Sequential(nn.Linear(STACK * FEATURES, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 6))

    def act(self, frames, epsilon):
        if random.random() < epsilon:
            return random.randrange(6)
        with torch.no_grad():
            return int(self.online(torch.from_numpy(np.concatenate(frames))).argmax())

    def learn(self):
        s, a, r, s2, d = self.memory.sample(64)
        with torch.no_grad():
            best = self.online(s2).argmax(1, keepdim=True)
            y = r + 0.98 * (1 - d) * self.target(s2).gather(1, best)[:, 0]
        loss = nn.functional.huber_loss(self.online(s).gather(1, a[:, None])[:, 0], y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 250 == 0:
            self.target.load_state_dict(self.online.state_dict())


def main(total=9000):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    tic = time.time()
    sim = LanderSim(np.random.default_rng(1))
    agent = DoubleDQN(ArrayMemory(20000) if FIXED else ListMemory(20000))
    frames = deque([sim.reset()] * STACK, maxlen=STACK)
    for step in range(total):
        state = tuple(frames)
        action = agent.act(state, max(0.1, 1 - step / 3000))
        obs, reward, done = sim.step(action)
        frames.append(obs)
        agent.memory.add(state, action, reward, tuple(frames), done)
        if done:
            frames = deque([sim.reset()] * STACK, maxlen=STACK)
        if step > 500 and step % 2 == 0:
            agent.learn()
    print(f"env_steps={total} updates={agent.updates} seconds={time.time() - tic:.2f}")


if __name__ == "__main__":
    main()
