"""PPO-style learner with an actor thread that gathers one segment per request."""
import os
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
N_ENVS, HORIZON, SEGMENTS, EPOCHS = 32, 24, 330, 3


class Pendulums:
    """A batch of torque-limited pendulums."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.th = self.rng.uniform(-np.pi, np.pi, n)
        self.w = self.rng.uniform(-1, 1, n)
        self.t = 0

    def observe(self):
        return np.stack([np.cos(self.th), np.sin(self.th), self.w], 1).astype(np.float32)

    def step(self, u):
        u = np.clip(u, -2, 2)
        ang = (self.th + np.pi) % (2 * np.pi) - np.pi
        cost = ang ** 2 + 0.1 * self.w ** 2 + 0.001 * u ** 2
        self.w = np.clip(self.w + (15.0 * np.sin(self.th) + 3.0 * u) * 0.05, -8, 8)
        self.th = self.th + 0.05 * self.w
        self.t += 1
        if self.t % 200 == 0:
            self.th = self.rng.uniform(-np.pi, np.pi, self.n)
        return self.observe(), -cost.astype(np.float32)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
        self.v = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.zeros(1))

    def dist(self, x):
        return torch.distributions.Normal(self.pi(x).squeeze(-1), self.log_std.exp(), validate_args=False)


class Actor(threading.Thread):
    def __init__(self, policy, requests, segments):
        super().__init__(daemon=True)
        self.policy, self.requests, self.segments = policy, requests, segments
        self.envs = Pendulums(N_ENVS, 11)
        self.rng = np.random.default_rng(12)

    def run(self):
        obs = self.envs.observe()
        while self.requests.get() is not None:
            seg = {k: [] for k in ("obs", "act", "rew")}
            with torch.no_grad():
                std = float(self.policy.log_std.exp())
                for _ in range(HORIZON):
                    mean = self.policy.pi(torch.from_numpy(obs)).squeeze(-1).numpy()
                    act = (mean + std * self.rng.standard_normal(N_ENVS)).astype(np.float32)
                    seg["obs"].append(obs)
                    seg["act"].append(act)
                    obs, rew = self.envs.step(act)
                    seg["rew"].append(rew)
            seg = {k: np.stack(v) for k, v in seg.items()}
            seg["last"] = obs
            self.segments.put(seg)


class Learner:
    def __init__(self):
        self.policy = Policy()
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.requests, self.segments = queue.Queue(), queue.Queue()
        self.actor = Actor(self.policy, self.requests, self.segments)
        self.actor.start()
        self.updates = 0

    def next_segment(self):
        self.requests.put("collect")
        if FIXED:
            return self.segments.get()
        while self.segments.empty():
            time.sleep(0.012)
        return self.segments.get_nowait()

    def learn(self, seg):
        obs, act = torch.from_numpy(seg["obs"]), torch.from_numpy(seg["act"])
        with torch.no_grad():
            value = self.policy.v(obs).squeeze(-1)
            ret = self.policy.v(torch.from_numpy(seg["last"])).squeeze(-1).numpy()
            old = self.policy.dist(obs).log_prob(act)
        returns = np.empty_like(seg["rew"])
        for t in reversed(range(HORIZON)):
            ret = seg["rew"][t] + 0.97 * ret
            returns[t] = ret
        target = torch.from_numpy(returns)
        adv = target - value
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        for _ in range(EPOCHS):
            ratio = (self.policy.dist(obs).log_prob(act) - old).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = -torch.min(ratio * adv, clipped * adv).mean()
            loss = loss + 0.01 * (self.policy.v(obs).squeeze(-1) - target).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.updates += 1


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    learner = Learner()
    steps = 0
    start = time.perf_counter()
    for _ in range(SEGMENTS):
        seg = learner.next_segment()
        steps += seg["rew"].size
        learner.learn(seg)
    seconds = time.perf_counter() - start
    learner.requests.put(None)
    learner.actor.join()
    print(f"env_steps={steps} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
