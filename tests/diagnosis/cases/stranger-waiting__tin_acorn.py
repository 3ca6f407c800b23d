"""Quantile-regression DQN on CartPole, minibatches drawn ahead by a helper thread."""
import os
import queue
import threading
import time

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

WARMUP, STEPS, TRAIN_EVERY, BATCH, QUANTILES = 500, 1600, 4, 128, 32
GAMMA, TARGET_EVERY = 0.99, 50


class Replay:
    def __init__(self, capacity):
        self.obs = np.zeros((capacity, 4), dtype=np.float32)
        self.following = np.zeros((capacity, 4), dtype=np.float32)
        self.action = np.zeros(capacity, dtype=np.int64)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.terminal = np.zeros(capacity, dtype=np.float32)
        self.size = 0

    def add(self, obs, action, reward, following, terminal):
        i = self.size
        self.obs[i], self.action[i], self.reward[i] = obs, action, reward
        self.following[i], self.terminal[i] = following, terminal
        self.size = i + 1

    def draw(self, rng, count):
        rows = rng.integers(self.size, size=count)
        columns = (self.obs, self.action, self.reward, self.following, self.terminal)
        return [torch.from_numpy(column[rows]) for column in columns]


class Feeder:
    """Keeps one minibatch ready for the learner."""

    def __init__(self, replay, seed):
        self.replay, self.rng = replay, np.random.default_rng(seed)
        self.ready = queue.Queue(maxsize=1)
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def _work(self):
        while not self.closing.is_set():
            if not FIXED and self.ready.full():
                time.sleep(0.01)
                continue
            self.ready.put(self.replay.draw(self.rng, BATCH))

    def next(self):
        return self.ready.get()

    def close(self):
        self.closing.set()
        while self.thread.is_alive():
            try:
                self.ready.get_nowait()
            except queue.Empty:
                pass
            self.thread.join(0.02)


class QuantileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                                 nn.Linear(128, 2 * QUANTILES))

    def forward(self, obs):
        return self.net(obs).view(-1, 2, QUANTILES)


def learn(net, target, optimizer, batch):
    obs, action, reward, following, terminal = batch
    rows = torch.arange(len(action))
    with torch.no_grad():
        ahead = target(following)
        ahead = ahead[rows, net(following).mean(-1).argmax(-1)]
        goal = reward[:, None] + GAMMA * (1 - terminal[:, None]) * ahead
    guess = net(obs)[rows, action]
    gap = goal[:, None, :] - guess[:, :, None]
    huber = torch.where(gap.abs() < 1, 0.5 * gap ** 2, gap.abs() - 0.5)
    taus = (torch.arange(QUANTILES) + 0.5) / QUANTILES
    loss = ((taus[None, :, None] - (gap.detach() < 0).float()).abs() * huber).mean(-1).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    torch.manual_seed(14)
    rng = np.random.default_rng(14)
    env, replay = gym.make("CartPole-v1"), Replay(WARMUP + STEPS)
    net, target = QuantileNet(), QuantileNet()
    target.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    obs, _ = env.reset(seed=14)
    feeder, updates, lengths, length = None, 0, [], 0
    begin = time.perf_counter()
    for step in range(1, WARMUP + STEPS + 1):
        if rng.random() < max(0.05, 1 - step / 1500):
            action = int(rng.integers(2))
        else:
            with torch.no_grad():
                action = int(net(torch.from_numpy(obs)[None]).mean(-1).argmax())
        following, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, action, reward, following, float(terminated))
        obs, length = following, length + 1
        if terminated or truncated:
            obs, _ = env.reset()
            lengths.append(length)
            length = 0
        if step == WARMUP:
            feeder = Feeder(replay, 15)
        if step > WARMUP and step % TRAIN_EVERY == 0:
            loss = learn(net, target, optimizer, feeder.next())
            updates += 1
            if updates % TARGET_EVERY == 0:
                target.load_state_dict(net.state_dict())
                print(f"step {step}: loss {loss.item():.3f} episode length {np.mean(lengths[-10:]):.1f}")
    seconds = time.perf_counter() - begin
    feeder.close()
    print(f"env_steps={WARMUP + STEPS} updates={updates} seconds={seconds:.3f}")


main()
