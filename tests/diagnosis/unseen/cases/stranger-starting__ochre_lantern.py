"""DAgger: imitate a lane-keeping controller on randomly curved roads, labelling the states the learner visits."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

CARS, ROUND_STEPS, ROUNDS, FITS, BATCH, LOOK = 32, 24, 170, 5, 256, 6
DT, SPEED = 0.1, 4.0


class RoadVec:
    """Cars on sine-shaped roads: lateral error, heading error, and the curvature ahead."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.amp, self.freq, self.phase = np.zeros((3, n))
        self.x, self.e, self.psi = np.zeros((3, n))
        self.reset(np.ones(n, bool))

    def reset(self, m):
        k = int(m.sum())
        self.amp[m], self.freq[m] = self.rng.uniform(0.02, 0.1, k), self.rng.uniform(0.1, 0.5, k)
        self.phase[m], self.x[m] = self.rng.uniform(0, 6, k), 0
        self.e[m], self.psi[m] = self.rng.normal(0, 0.5, k), self.rng.normal(0, 0.1, k)

    def curvature(self, ahead):
        return self.amp[:, None] * np.sin(self.freq[:, None] * (self.x[:, None] + ahead) + self.phase[:, None])

    def obs(self):
        ahead = self.curvature(np.arange(LOOK)[None] * 1.0)
        return np.concatenate([self.e[:, None], self.psi[:, None], 10 * ahead], 1).astype(np.float32)

    def expert(self):
        steer = 2.5 * self.curvature(np.zeros((1, 1)))[:, 0] - 0.25 * self.e - 1.1 * self.psi
        return np.clip(steer, -1, 1).astype(np.float32)

    def step(self, steer):
        self.psi += DT * SPEED * (steer / 2.5 - self.curvature(np.zeros((1, 1)))[:, 0])
        self.e += DT * SPEED * np.sin(self.psi)
        self.x += DT * SPEED
        off = (np.abs(self.e) > 3) | (self.x > 60)
        if off.any():
            self.reset(off)
        return self.obs(), int((np.abs(self.e) > 3).sum())


class Driver(nn.Module):
    def __init__(self, obs_dim):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 64), nn.ELU(), nn.Linear(64, 64), nn.ELU())
        self.gate = nn.Linear(64, 64)
        self.out = nn.Linear(64, 1)

    def forward(self, obs):
        h = self.body(obs)
        h = h * torch.sigmoid(self.gate(h))
        return torch.tanh(self.out(h)).squeeze(-1)


class Student:
    def __init__(self, obs_dim):
        self.net = Driver(obs_dim)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.example = torch.zeros(CARS, obs_dim)
        self.traced = None

    def runner(self):
        if self.traced is None or not FIXED:
            self.traced = torch.jit.trace(self.net, self.example)
        return self.traced

    def fit(self, obs, label, rng):
        for idx in rng.integers(len(obs), size=(FITS, BATCH)):
            loss = F.mse_loss(self.net(torch.from_numpy(obs[idx])), torch.from_numpy(label[idx]))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def gather(env, drive, beta, rng, obs_out, label_out):
    obs = env.obs()
    with torch.no_grad():
        for t in range(ROUND_STEPS):
            label = env.expert()
            obs_out[t], label_out[t] = obs, label
            steer = drive(torch.from_numpy(obs)).numpy()
            steer = np.where(rng.random(CARS) < beta, label, steer)
            obs, _ = env.step(steer)


def main():
    torch.manual_seed(13)
    rng = np.random.default_rng(13)
    env = RoadVec(CARS, seed=13)
    obs_dim = LOOK + 2
    student = Student(obs_dim)
    all_obs = np.zeros((ROUNDS, ROUND_STEPS, CARS, obs_dim), np.float32)
    all_label = np.zeros((ROUNDS, ROUND_STEPS, CARS), np.float32)
    start = time.perf_counter()
    for r in range(ROUNDS):
        gather(env, student.runner(), max(0.0, 1 - r / 40), rng, all_obs[r], all_label[r])
        loss = student.fit(all_obs[:r + 1].reshape(-1, obs_dim), all_label[:r + 1].reshape(-1), rng)
        if r % 40 == 39:
            print(f"round {r + 1} loss {loss:.5f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={ROUNDS * ROUND_STEPS * CARS} updates={ROUNDS * FITS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
