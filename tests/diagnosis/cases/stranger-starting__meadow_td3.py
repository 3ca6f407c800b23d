"""Deterministic actor-critic on Pendulum that keeps a folder of checkpoints with a description of the run."""
import copy
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, WARMUP, BATCH, KEEP_EVERY = 2000, 200, 128, 250


def mlp(n_in, n_out, last=None):
    layers = [nn.Linear(n_in, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, n_out)]
    return nn.Sequential(*layers, *([last] if last else []))


class Ring:
    def __init__(self, capacity, widths):
        self.data = [np.zeros((capacity, w), np.float32) for w in widths]
        self.capacity, self.count = capacity, 0

    def push(self, *row):
        i = self.count % self.capacity
        for store, value in zip(self.data, row):
            store[i] = value
        self.count += 1

    def pick(self, rng, n):
        idx = rng.integers(0, min(self.count, self.capacity), n)
        return [torch.from_numpy(store[idx]) for store in self.data]


class Learner:
    def __init__(self):
        self.actor, self.critic = mlp(3, 1, nn.Tanh()), mlp(4, 1)
        self.slow_actor, self.slow_critic = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.opt_a = torch.optim.Adam(self.actor.parameters(), 1e-3)
        self.opt_c = torch.optim.Adam(self.critic.parameters(), 1e-3)
        self.updates = 0

    def act(self, obs, rng):
        with torch.no_grad():
            mean = self.actor(torch.from_numpy(obs)).numpy()
        return np.clip(2 * mean + rng.normal(0, 0.2, 1), -2, 2).astype(np.float32)

    def update(self, obs, act, rew, nxt, end):
        with torch.no_grad():
            goal = rew + 0.98 * (1 - end) * self.slow_critic(torch.cat([nxt, 2 * self.slow_actor(nxt)], 1))
        loss = (self.critic(torch.cat([obs, act], 1)) - goal).pow(2).mean()
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        if self.updates % 2 == 0:
            gain = -self.critic(torch.cat([obs, 2 * self.actor(obs)], 1)).mean()
            self.opt_a.zero_grad()
            gain.backward()
            self.opt_a.step()
            with torch.no_grad():
                for slow, net in ((self.slow_actor, self.actor), (self.slow_critic, self.critic)):
                    torch._foreach_lerp_(list(slow.parameters()), list(net.parameters()), 0.01)
        self.updates += 1


class Shelf:
    """Writes numbered checkpoints, each with the versions it was made with."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.about = self.describe() if FIXED else None

    def describe(self):
        code = "import numpy, sys; print(numpy.__version__, sys.version.split()[0])"
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        return {"versions": out.split(), "torch": torch.__version__, "host": platform.node()}

    def keep(self, learner, step):
        torch.save({"actor": learner.actor.state_dict(), "critic": learner.critic.state_dict()}, self.folder / f"{step}.pt")
        about = dict(self.about or self.describe(), step=step, updates=learner.updates)
        (self.folder / f"{step}.json").write_text(json.dumps(about))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    env = gym.make("Pendulum-v1")
    ring, learner = Ring(5000, (3, 1, 1, 3, 1)), Learner()
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(folder)
        obs, _ = env.reset(seed=4)
        start = time.perf_counter()
        for step in range(1, STEPS + 1):
            act = learner.act(obs, rng)
            nxt, rew, term, trunc, _ = env.step(act)
            ring.push(obs, act, rew / 10, nxt, term)
            obs = env.reset()[0] if term or trunc else nxt
            if step > WARMUP:
                learner.update(*ring.pick(rng, BATCH))
            if step % KEEP_EVERY == 0:
                shelf.keep(learner, step)
        seconds = time.perf_counter() - start
    print(f"env_steps={STEPS} updates={learner.updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
