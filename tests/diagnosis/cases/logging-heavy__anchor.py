"""Double Q-learning for a greenhouse controller, with a run journal on disk."""
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


class Greenhouse:
    """Keeps temperature and moisture of ten beds near a set point, with one valve position for all."""

    n_actions = 5

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.beds = self.rng.normal(0, 1, 20).astype(np.float32)
        self.t = 0
        return self.beds

    def step(self, action):
        push = (action - 2) * 0.1
        self.beds = (0.98 * self.beds + push + self.rng.normal(0, 0.05, 20)).astype(np.float32)
        self.t += 1
        return self.beds, -float(np.abs(self.beds).mean()), self.t >= 120


class Journal:
    """One text file per run; the notebook reads it afterwards."""

    def __init__(self, folder, every):
        self.log = logging.getLogger("greenhouse")
        self.log.setLevel(logging.INFO)
        self.log.propagate = False
        handler = logging.FileHandler(Path(folder) / "run.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
        self.log.addHandler(handler)
        self.every = every

    def transition(self, step, obs, q, action, reward):
        if step % self.every == 0:
            self.log.info("step=%d action=%d reward=%.4f obs=%s q=%s", step, action, reward,
                          np.array2string(obs, precision=3), np.array2string(q, precision=3))

    def update(self, step, loss, online):
        if step % self.every == 0:
            norms = {name: round(p.norm().item(), 4) for name, p in online.named_parameters()}
            self.log.info("step=%d loss=%.5f weights=%s", step, loss.item(), norms)


class Trainer:
    def __init__(self, folder, steps=6000, warmup=500):
        torch.manual_seed(21)
        self.env, self.rng = Greenhouse(21), np.random.default_rng(22)
        self.steps, self.warmup, self.updates = steps, warmup, 0
        self.online, self.target = self.build(), self.build()
        self.target.load_state_dict(self.online.state_dict())
        self.opt = torch.optim.Adam(self.online.parameters(), 1e-3)
        self.journal = Journal(folder, every=200 if FIXED else 1)
        self.obs, self.nxt = np.zeros((steps, 20), np.float32), np.zeros((steps, 20), np.float32)
        self.act, self.rew = np.zeros(steps, np.int64), np.zeros(steps, np.float32)

    def build(self):
        return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, Greenhouse.n_actions))

    def act_on(self, obs):
        with torch.no_grad():
            q = self.online(torch.from_numpy(obs)).numpy()
        action = int(self.rng.integers(5)) if self.rng.random() < 0.1 else int(q.argmax())
        return action, q

    def learn(self, filled):
        pick = self.rng.integers(filled, size=64)
        obs, nxt = torch.from_numpy(self.obs[pick]), torch.from_numpy(self.nxt[pick])
        act, rew = torch.from_numpy(self.act[pick])[:, None], torch.from_numpy(self.rew[pick])[:, None]
        with torch.no_grad():
            best = self.online(nxt).argmax(1, keepdim=True)
            goal = rew + 0.95 * self.target(nxt).gather(1, best)
        loss = F.smooth_l1_loss(self.online(obs).gather(1, act), goal)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1
        if self.updates % 250 == 0:
            self.target.load_state_dict(self.online.state_dict())
        return loss

    def run(self):
        obs = self.env.reset()
        for t in range(self.steps):
            action, q = self.act_on(obs)
            nxt, reward, done = self.env.step(action)
            self.obs[t], self.act[t], self.rew[t], self.nxt[t] = obs, action, reward, nxt
            self.journal.transition(t, obs, q, action, reward)
            if t >= self.warmup and t % 2 == 0:
                loss = self.learn(t)
                self.journal.update(t, loss, self.online)
            obs = self.env.reset() if done else nxt


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(folder)
        start = time.perf_counter()
        trainer.run()
        seconds = time.perf_counter() - start
        logging.shutdown()
    print(f"env_steps={trainer.steps} updates={trainer.updates} seconds={seconds:.3f}")
