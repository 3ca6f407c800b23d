"""A2C on a batch of cart-and-pole environments."""
import math
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"


@dataclass
class Config:
    envs: int = 16
    horizon: int = 16
    iterations: int = 720
    gamma: float = 0.99
    lr: float = 7e-4
    seed: int = 3


class CartPole:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.reset()

    def reset(self):
        self.x, self.v, self.th, self.w = (self.rng.uniform(-0.05, 0.05) for _ in range(4))
        self.t = 0
        return self.x, self.v, self.th, self.w

    def step(self, action):
        force = 10.0 if action else -10.0
        c, s = math.cos(self.th), math.sin(self.th)
        tmp = (force + 0.05 * self.w * self.w * s) / 1.1
        acc = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        lin = tmp - 0.05 * acc * c / 1.1
        self.x += 0.02 * self.v
        self.v += 0.02 * lin
        self.th += 0.02 * self.w
        self.w += 0.02 * acc
        self.t += 1
        done = abs(self.x) > 2.4 or abs(self.th) > 0.21 or self.t >= 500
        obs = self.reset() if done else (self.x, self.v, self.th, self.w)
        return obs, 1.0, done


class EnvGroup:
    def __init__(self, n, seed):
        self.envs = [CartPole(seed + i) for i in range(n)]
        self.workers = ThreadPoolExecutor(max_workers=n)

    def reset(self):
        return np.array([env.reset() for env in self.envs], dtype=np.float32)

    def step(self, actions):
        if FIXED:
            results = [env.step(a) for env, a in zip(self.envs, actions)]
        else:
            futures = [self.workers.submit(env.step, a) for env, a in zip(self.envs, actions)]
            results = [f.result() for f in futures]
        obs, rew, done = zip(*results)
        return (np.array(obs, dtype=np.float32), np.array(rew, dtype=np.float32),
                np.array(done, dtype=np.float32))

    def close(self):
        self.workers.shutdown()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        out = self.head(self.body(x))
        return out[..., :2], out[..., 2]


def main(cfg):
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    group = EnvGroup(cfg.envs, cfg.seed)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    shape = (cfg.horizon, cfg.envs)
    obs_buf = np.zeros(shape + (4,), np.float32)
    act_buf = np.zeros(shape, np.int64)
    rew_buf, done_buf = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    steps = updates = 0
    obs = group.reset()
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        for t in range(cfg.horizon):
            with torch.no_grad():
                logits, _ = net(torch.from_numpy(obs))
                p1 = logits.softmax(-1)[:, 1].numpy()
            actions = (rng.random(cfg.envs) < p1).astype(np.int64)
            obs_buf[t], act_buf[t] = obs, actions
            obs, rew_buf[t], done_buf[t] = group.step(actions.tolist())
            steps += cfg.envs
        with torch.no_grad():
            ret = net(torch.from_numpy(obs))[1].numpy()
        returns = np.zeros(shape, np.float32)
        for t in reversed(range(cfg.horizon)):
            ret = rew_buf[t] + cfg.gamma * ret * (1.0 - done_buf[t])
            returns[t] = ret
        logits, value = net(torch.from_numpy(obs_buf))
        logp = logits.log_softmax(-1)
        target = torch.from_numpy(returns)
        adv = target - value.detach()
        picked = logp.gather(-1, torch.from_numpy(act_buf)[..., None]).squeeze(-1)
        loss = -(picked * adv).mean() + 0.5 * (target - value).pow(2).mean()
        loss = loss + 0.01 * (logp.exp() * logp).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        updates += 1
    seconds = time.perf_counter() - start
    group.close()
    print(f"env_steps={steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main(Config())
