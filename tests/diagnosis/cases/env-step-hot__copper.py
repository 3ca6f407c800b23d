"""Actor-critic that steers a burner over a metal plate to hold a target temperature pattern."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SIDE = 14
MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]


class PlateEnv:
    """A square plate that conducts and loses heat; the agent moves a burner over it."""

    def __init__(self, seed, horizon=120):
        self.rng = np.random.default_rng(seed)
        self.horizon = horizon
        self.alpha, self.loss, self.power = 0.18, 0.01, 1.5
        self.reset()

    def reset(self):
        self.plate = np.zeros((SIDE, SIDE))
        yy, xx = np.mgrid[0:SIDE, 0:SIDE]
        cy, cx = self.rng.uniform(3, SIDE - 3, size=2)
        self.target = np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / 18.0)
        self.pos = self.rng.integers(0, SIDE, size=2)
        self.t = 0
        return self._observe()

    def _observe(self):
        where = self.pos / SIDE
        coarse = (self.plate - self.target).reshape(7, 2, 7, 2).mean((1, 3)).ravel()
        return np.concatenate([coarse, where]).astype(np.float32)

    def _conduct(self):
        if FIXED:
            p = np.pad(self.plate, 1, mode="edge")
            lap = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4.0 * self.plate
            self.plate = (self.plate + self.alpha * lap) * (1.0 - self.loss)
            return
        new = np.zeros_like(self.plate)
        for y in range(SIDE):
            for x in range(SIDE):
                here = self.plate[y, x]
                up = self.plate[max(y - 1, 0), x]
                down = self.plate[min(y + 1, SIDE - 1), x]
                left = self.plate[y, max(x - 1, 0)]
                right = self.plate[y, min(x + 1, SIDE - 1)]
                new[y, x] = (here + self.alpha * (up + down + left + right - 4.0 * here)) * (1.0 - self.loss)
        self.plate = new

    def step(self, action):
        dy, dx = MOVES[action]
        self.pos = np.clip(self.pos + (dy, dx), 0, SIDE - 1)
        self.plate[self.pos[0], self.pos[1]] += self.power
        self._conduct()
        self.t += 1
        reward = -float(np.abs(self.plate - self.target).mean())
        return self._observe(), reward, self.t >= self.horizon


class ActorCritic(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.pi, self.v = nn.Linear(128, n_out), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


class Trainer:
    def __init__(self, n_envs=8, n_steps=20):
        self.envs = [PlateEnv(s) for s in range(n_envs)]
        self.n_steps = n_steps
        self.obs = np.stack([e.reset() for e in self.envs])
        self.net = ActorCritic(self.obs.shape[1], len(MOVES))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=7e-4)
        self.env_steps = self.updates = 0

    def collect(self):
        n = len(self.envs)
        obs = np.zeros((self.n_steps, n, self.obs.shape[1]), np.float32)
        act = np.zeros((self.n_steps, n), np.int64)
        rew, done = np.zeros((self.n_steps, n), np.float32), np.zeros((self.n_steps, n), np.float32)
        for t in range(self.n_steps):
            obs[t] = self.obs
            with torch.no_grad():
                logits, _ = self.net(torch.from_numpy(self.obs))
                act[t] = torch.multinomial(logits.softmax(-1), 1).squeeze(-1).numpy()
            for i, env in enumerate(self.envs):
                ob, rew[t, i], over = env.step(act[t, i])
                done[t, i] = over
                self.obs[i] = env.reset() if over else ob
        self.env_steps += self.n_steps * n
        return obs, act, rew, done

    def learn(self, obs, act, rew, done):
        with torch.no_grad():
            ret = self.net(torch.from_numpy(self.obs))[1].numpy()
        targets = np.zeros_like(rew)
        for t in reversed(range(self.n_steps)):
            ret = rew[t] + 0.98 * ret * (1.0 - done[t])
            targets[t] = ret
        logits, value = self.net(torch.from_numpy(obs))
        logp = F.log_softmax(logits, -1)
        chosen = logp.gather(-1, torch.from_numpy(act).unsqueeze(-1)).squeeze(-1)
        adv = torch.from_numpy(targets) - value
        loss = -(chosen * adv.detach()).mean() + 0.5 * adv.pow(2).mean() + 0.01 * (logp.exp() * logp).sum(-1).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.updates += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer()
    start = time.perf_counter()
    for _ in range(110):
        trainer.learn(*trainer.collect())
    print(f"env_steps={trainer.env_steps} updates={trainer.updates} seconds={time.perf_counter() - start:.3f}")
