"""Synchronous actor-critic (PPO loss) on a batch of tank-level control problems simulated in numpy."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N, T = 128, 32
OBS, ACTIONS = 12, 7
ITERATIONS, EPOCHS, MINIBATCH = 32, 4, 1024


class Tanks:
    """Three coupled tanks per problem; the action chooses which valves are open."""

    VALVES = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], np.float32)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.level = self._fresh(N)
        self.goal = self._fresh(N)
        self.age = self.rng.integers(0, 100, N)
        self.valves = np.zeros((N, 3), np.float32)

    def _fresh(self, k):
        return self.rng.random((k, 3), dtype=np.float32)

    def observe(self):
        return np.concatenate([self.level, self.goal, self.goal - self.level, self.valves], axis=1)

    def step(self, actions):
        self.valves = self.VALVES[actions]
        flow = 0.05 * (np.roll(self.level, 1, axis=1) - self.level)
        self.level = np.clip(self.level + flow + 0.08 * self.valves - 0.03, 0, 1)
        reward = -np.abs(self.level - self.goal).sum(1)
        self.age += 1
        done = self.age >= 100
        k = int(done.sum())
        if k:
            self.level[done], self.goal[done], self.age[done] = self._fresh(k), self._fresh(k), 0
        return self.observe(), reward, done.astype(np.float32)


class Net(nn.Module):
    def __init__(self, hidden=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.out = nn.Linear(hidden, ACTIONS + 1)

    def forward(self, x):
        y = self.out(self.body(x))
        return F.log_softmax(y[:, :ACTIONS], dim=1), y[:, ACTIONS]


class Storage:
    def __init__(self):
        self.obs = torch.zeros(T, N, OBS)
        self.act = torch.zeros(T, N, dtype=torch.int64)
        self.logp, self.rew, self.done, self.adv = (torch.zeros(T, N) for _ in range(4))
        self.val = torch.zeros(T + 1, N)

    def advantages(self, gamma=0.97, lam=0.95):
        delta = self.rew + gamma * (1 - self.done) * self.val[1:] - self.val[:-1]
        decay = gamma * lam * (1 - self.done)
        last = torch.zeros(N)
        for t in reversed(range(T)):
            last = delta[t] + decay[t] * last
            self.adv[t] = last

    def flat(self):
        ret = self.adv + self.val[:-1]
        return self.obs.view(-1, OBS), self.act.view(-1), self.logp.view(-1), self.adv.view(-1), ret.view(-1)


@torch.no_grad()
def collect(net, env, obs, store):
    for t in range(T):
        store.obs[t] = torch.from_numpy(obs)
        logp, store.val[t] = net(store.obs[t])
        act = torch.multinomial(logp.exp(), 1)
        store.act[t], store.logp[t] = act[:, 0], logp.gather(1, act)[:, 0]
        obs, reward, done = env.step(act[:, 0].numpy())
        store.rew[t], store.done[t] = torch.from_numpy(reward), torch.from_numpy(done)
    store.val[T] = net(torch.from_numpy(obs))[1]
    store.advantages()
    return obs


def learn(net, optimizer, store):
    data, count = store.flat(), 0
    for _ in range(EPOCHS):
        for rows in torch.randperm(N * T).split(MINIBATCH):
            obs, act, old, adv, ret = (x[rows] for x in data)
            logp, value = net(obs)
            ratio = (logp.gather(1, act[:, None])[:, 0] - old).exp()
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
            actor = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            entropy = -(logp.exp() * logp).sum(1).mean()
            loss = actor + 0.5 * F.mse_loss(value, ret) - 0.01 * entropy
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            count += 1
    return count


def main():
    torch.manual_seed(0)
    env, net, store = Tanks(0), Net(), Storage()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    obs, updates = env.observe(), 0
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        obs = collect(net, env, obs, store)
        updates += learn(net, optimizer, store)
    print(f"env_steps={ITERATIONS * T * N} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
