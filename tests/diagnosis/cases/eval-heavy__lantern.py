"""Double DQN on gymnasium's CartPole with a progress report on held-out seeds."""
import os
import time
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Settings:
    total_steps: int = 6000
    learning_starts: int = 500
    batch_size: int = 64
    gamma: float = 0.99
    lr: float = 5e-4
    target_every: int = 250
    report_every: int = 3000 if FIXED else 200
    report_episodes: int = 5 if FIXED else 10
    epsilon: tuple = (1.0, 0.05)
    seed: int = 9


@dataclass
class Memory:
    size: int = 6000
    n: int = 0
    obs: np.ndarray = field(default_factory=lambda: np.zeros((6000, 4), np.float32))
    nxt: np.ndarray = field(default_factory=lambda: np.zeros((6000, 4), np.float32))
    act: np.ndarray = field(default_factory=lambda: np.zeros(6000, np.int64))
    rew: np.ndarray = field(default_factory=lambda: np.zeros(6000, np.float32))
    end: np.ndarray = field(default_factory=lambda: np.zeros(6000, np.float32))

    def put(self, o, a, r, o2, end):
        i = self.n % self.size
        self.obs[i], self.act[i], self.rew[i], self.nxt[i], self.end[i] = o, a, r, o2, end
        self.n += 1

    def draw(self, rng, k):
        i = rng.integers(0, min(self.n, self.size), k)
        return [torch.from_numpy(x[i]) for x in (self.obs, self.act, self.rew, self.nxt, self.end)]


def build():
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


@torch.no_grad()
def greedy(net, obs):
    return int(net(torch.from_numpy(obs)).argmax())


def held_out_return(net, env, cfg):
    """Mean greedy return over the held-out seeds."""
    totals = []
    for k in range(cfg.report_episodes):
        obs, _ = env.reset(seed=10_000 + k)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(greedy(net, obs))
            total += reward
            over = terminated or truncated
        totals.append(total)
    return float(np.mean(totals))


def learn(net, target, opt, cfg, batch):
    o, a, r, o2, end = batch
    with torch.no_grad():
        pick = net(o2).argmax(1, keepdim=True)
        y = r + cfg.gamma * (1 - end) * target(o2).gather(1, pick).squeeze(1)
    loss = nn.functional.smooth_l1_loss(net(o).gather(1, a.unsqueeze(1)).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()


def train(cfg):
    rng = np.random.default_rng(cfg.seed)
    env, held_out = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    net, target = build(), build()
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    memory, curve, updates = Memory(), [], 0
    obs, _ = env.reset(seed=cfg.seed)
    for step in range(1, cfg.total_steps + 1):
        eps = max(cfg.epsilon[1], cfg.epsilon[0] - step / (0.3 * cfg.total_steps))
        action = int(rng.integers(2)) if rng.random() < eps else greedy(net, obs)
        nxt, reward, terminated, truncated, _ = env.step(action)
        memory.put(obs, action, reward, nxt, terminated)
        obs = env.reset()[0] if terminated or truncated else nxt
        if step > cfg.learning_starts and step % 2 == 0:
            learn(net, target, opt, cfg, memory.draw(rng, cfg.batch_size))
            updates += 1
        if step % cfg.target_every == 0:
            target.load_state_dict(net.state_dict())
        if step % cfg.report_every == 0:
            curve.append((step, held_out_return(net, held_out, cfg)))
    return updates, curve


if __name__ == "__main__":
    torch.set_num_threads(1)
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    start = time.perf_counter()
    updates, curve = train(cfg)
    seconds = time.perf_counter() - start
    print(f"env_steps={cfg.total_steps} updates={updates} seconds={seconds:.3f}")
