"""PPO for a bank of elevators (64 buildings at once in NumPy)."""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"


class Elevators:
    def __init__(self, n, seed, floors=6):
        self.n, self.floors, self.rng = n, floors, np.random.default_rng(seed)

    def reset(self):
        self.floor = self.rng.integers(0, self.floors, self.n)
        self.calls = self.rng.random((self.n, self.floors)) < 0.3
        self.clock = self.rng.integers(0, 100, self.n)
        return self.state()

    def state(self):
        return np.concatenate([np.eye(self.floors, dtype=np.float32)[self.floor], self.calls.astype(np.float32)], 1)

    def step(self, action):
        rows = np.arange(self.n)
        self.floor = np.clip(self.floor + np.array([-1, 0, 1])[action], 0, self.floors - 1)
        served = self.calls[rows, self.floor] & (action == 1)
        self.calls[rows[served], self.floor[served]] = False
        self.calls |= self.rng.random((self.n, self.floors)) < 0.03
        self.clock += 1
        done = self.clock % 100 == 0
        return self.state(), (served - 0.05 * self.calls.sum(1)).astype(np.float32), done.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, n_out))
        self.c = nn.Sequential(nn.Linear(n_in, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))


def advantages(rewards, values, dones, last, gamma=0.99, lam=0.95):
    T, n = rewards.shape
    if FIXED:
        adv = torch.zeros_like(rewards)
        nxt, run = last, torch.zeros(n)
        for t in range(T - 1, -1, -1):
            live = 1 - dones[t]
            run = rewards[t] + gamma * nxt * live - values[t] + gamma * lam * live * run
            adv[t], nxt = run, values[t]
        return adv
    columns = []
    for k in range(n):
        run, nxt, column = 0.0, last[k], []
        for t in range(T - 1, -1, -1):
            live = 1 - dones[t, k]
            delta = rewards[t, k] + gamma * nxt * live - values[t, k]
            run = delta + gamma * lam * live * run
            nxt = values[t, k]
            column.insert(0, run)
        columns.append(torch.stack(column))
    return torch.stack(columns, 1)


def ppo(net, opt, S, A, L, adv, ret, epochs=4, batch=512):
    count = 0
    for _ in range(epochs):
        for i in torch.randperm(len(A)).split(batch):
            dist = Categorical(logits=net.a(S[i]))
            ratio = torch.exp(dist.log_prob(A[i]) - L[i])
            w = (adv[i] - adv[i].mean()) / (adv[i].std() + 1e-8)
            gain = torch.minimum(w * ratio, w * ratio.clamp(0.8, 1.2)).mean()
            loss = -gain + 0.5 * (net.c(S[i])[:, 0] - ret[i]).square().mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            count += 1
    return count


def main(n=64, T=64, iterations=40):
    torch.set_num_threads(1)
    torch.manual_seed(16)
    t0 = time.time()
    env, net = Elevators(n, 16), ActorCritic(12, 3)
    opt = torch.optim.Adam(net.parameters(), lr=2.5e-4)
    s = torch.from_numpy(env.reset())
    updates = 0
    for _ in range(iterations):
        rows = []
        for _ in range(T):
            with torch.no_grad():
                dist, v = Categorical(logits=net.a(s)), net.c(s)[:, 0]
                a = dist.sample()
                rows.append([s, a, dist.log_prob(a), v])
            s2, r, d = env.step(a.numpy())
            rows[-1] += [torch.from_numpy(r), torch.from_numpy(d)]
            s = torch.from_numpy(s2)
        with torch.no_grad():
            last = net.c(s)[:, 0]
        S, A, L, V, R, D = (torch.stack(column) for column in zip(*rows, strict=True))
        adv = advantages(R, V, D, last)
        updates += ppo(net, opt, S.flatten(0, 1), A.flatten(), L.flatten(), adv.flatten(), (adv + V).flatten())
    print(f"env_steps={iterations * n * T} updates={updates} seconds={time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
