"""DQN whose replay memory lives in its own thread and is reached by messages."""
import os
import queue
import random
import threading
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
STEPS, WARMUP, BATCH, EVERY = 3600, 400, 128, 6


class Memory(threading.Thread):
    """Owns the transitions; others add and draw through its mailboxes."""

    def __init__(self, capacity, obs_dim, seed):
        super().__init__(daemon=True)
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.capacity, self.size, self.head = capacity, 0, 0
        self.rng = np.random.default_rng(seed)
        self.incoming = queue.Queue()
        self.orders = self.incoming if FIXED else queue.Queue()
        self.batches = queue.Queue()
        self.open = True

    def run(self):
        while self.open:
            try:
                self.handle(self.incoming.get(timeout=0.004))
            except queue.Empty:
                if not self.orders.empty():
                    self.handle(self.orders.get())

    def handle(self, message):
        kind, payload = message
        if kind == "add":
            i = self.head
            self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.done[i] = payload
            self.head = (i + 1) % self.capacity
            self.size = min(self.size + 1, self.capacity)
        else:
            idx = self.rng.integers(0, self.size, payload)
            self.batches.put([torch.from_numpy(a[idx]) for a in (self.obs, self.act, self.rew, self.nxt, self.done)])

    def add(self, *transition):
        self.incoming.put(("add", transition))

    def draw(self, n):
        self.orders.put(("draw", n))
        return self.batches.get()


class Agent:
    def __init__(self, obs_dim, n_actions):
        def build():
            return nn.Sequential(nn.Linear(obs_dim, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_actions))
        self.q, self.target = build(), build()
        self.target.load_state_dict(self.q.state_dict())
        self.opt = torch.optim.Adam(self.q.parameters(), 5e-4)
        self.n_actions = n_actions

    def act(self, obs, eps):
        if random.random() < eps:
            return random.randrange(self.n_actions)
        with torch.no_grad():
            return int(self.q(torch.from_numpy(obs)).argmax())

    def learn(self, batch):
        obs, act, rew, nxt, done = batch
        with torch.no_grad():
            goal = rew + 0.99 * (1 - done) * self.target(nxt).max(1).values
        loss = F.smooth_l1_loss(self.q(obs).gather(1, act[:, None])[:, 0], goal)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()


def main():
    torch.set_num_threads(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    env = gym.make("CartPole-v1")
    agent = Agent(4, 2)
    memory = Memory(10_000, 4, seed=1)
    memory.start()
    updates = 0
    obs, _ = env.reset(seed=1)
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        action = agent.act(obs, max(0.05, 1 - step / 1500))
        nxt, reward, term, trunc, _ = env.step(action)
        memory.add(obs, action, reward, nxt, float(term))
        obs = env.reset()[0] if term or trunc else nxt
        if step > WARMUP and step % EVERY == 0:
            agent.learn(memory.draw(BATCH))
            updates += 1
        if step % 500 == 0:
            agent.target.load_state_dict(agent.q.state_dict())
    seconds = time.perf_counter() - start
    memory.open = False
    memory.join()
    print(f"env_steps={STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
