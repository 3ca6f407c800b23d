"""PPO on 512 drones in a wind field; everything in arrays."""
import time

import numpy as np
import torch
import torch.nn as nn


class Wind:
    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)
        self.s = np.zeros((n, 8), np.float32)
        self.age = self.rng.integers(0, 100, n)
        self._start(np.arange(n))

    def _start(self, idx):
        self.s[idx] = self.rng.normal(0, 0.5, (len(idx), 8)).astype(np.float32)
        self.age[idx] = 0

    def step(self, act):
        s = self.s
        gust = np.sin(3.0 * s[:, 0:2]) * np.cos(2.0 * s[:, 1::-1])
        s[:, 2:4] = 0.95 * s[:, 2:4] + 0.1 * act + 0.03 * gust + 0.02 * s[:, 6:8]
        s[:, 0:2] += 0.1 * s[:, 2:4]
        s[:, 6:8] *= 0.99
        dist = np.sqrt(np.square(s[:, 0:2] - s[:, 4:6]).sum(1))
        self.age += 1
        done = (self.age >= 100) | (dist > 6.0)
        ended = np.flatnonzero(done)
        if len(ended):
            self._start(ended)
        return s.copy(), -dist, done.astype(np.float32)


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))
        self.v = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
        self.log_std = nn.Parameter(torch.zeros(2))

    def dist(self, x):
        return torch.distributions.Normal(self.pi(x), self.log_std.exp(), validate_args=False)


def gae(rew, val, done, last):
    adv, run = np.zeros_like(rew), 0.0
    for t in range(len(rew) - 1, -1, -1):
        nxt = last if t == len(rew) - 1 else val[t + 1]
        live = 1.0 - done[t]
        run = rew[t] + 0.99 * nxt * live - val[t] + 0.99 * 0.95 * live * run
        adv[t] = run
    return adv


def main(n=512, horizon=64, rounds=3, epochs=4, minibatch=4096):
    torch.set_num_threads(1)
    torch.manual_seed(9)
    env, pilot = Wind(n, 9), Pilot()
    opt = torch.optim.Adam(pilot.parameters(), 3e-4)
    O = np.zeros((horizon, n, 8), np.float32)
    A = np.zeros((horizon, n, 2), np.float32)
    L, V, R, D = (np.zeros((horizon, n), np.float32) for _ in range(4))
    obs, updates = env.s.copy(), 0
    start = time.perf_counter()
    for _ in range(rounds):
        for t in range(horizon):
            with torch.inference_mode():
                x = torch.from_numpy(obs)
                dist = pilot.dist(x)
                act = dist.sample()
                L[t] = dist.log_prob(act).sum(-1).numpy()
                V[t] = pilot.v(x).squeeze(-1).numpy()
            O[t], A[t] = obs, act.numpy()
            obs, R[t], D[t] = env.step(A[t].clip(-1, 1))
        with torch.inference_mode():
            last = pilot.v(torch.from_numpy(obs)).squeeze(-1).numpy()
        adv = gae(R, V, D, last)
        data = [torch.from_numpy(a.reshape(horizon * n, *a.shape[2:])) for a in (O, A, L, adv, adv + V)]
        for _ in range(epochs):
            for idx in torch.randperm(horizon * n).split(minibatch):
                o, a, l, ad, ret = (d[idx] for d in data)
                ratio = (pilot.dist(o).log_prob(a).sum(-1) - l).exp()
                ad = (ad - ad.mean()) / (ad.std() + 1e-8)
                loss = -torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
                loss = loss + 0.5 * (pilot.v(o).squeeze(-1) - ret).square().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(pilot.parameters(), 0.5)
                opt.step()
                updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={rounds * horizon * n} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
