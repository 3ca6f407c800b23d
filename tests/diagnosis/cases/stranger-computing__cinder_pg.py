"""PPO in one file on a vector of tethered masses, with a running summary of the rewards."""
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"


class Tethers:
    """Each copy holds five masses on springs; the agent pushes the first, the last must reach a mark."""

    def __init__(self, n, seed, links=5, substeps=6):
        self.n, self.links, self.substeps, self.rng = n, links, substeps, np.random.default_rng(seed)
        self.x, self.v = np.zeros((n, links)), np.zeros((n, links))
        self.mark, self.t = np.zeros(n), np.zeros(n, np.int64)
        self._renew(np.ones(n, bool))

    def _renew(self, mask):
        k = int(mask.sum())
        self.x[mask], self.v[mask] = self.rng.normal(0, 0.1, (k, self.links)), 0.0
        self.mark[mask], self.t[mask] = self.rng.uniform(-1, 1, k), self.rng.integers(0, 50, k)

    def obs(self):
        return np.concatenate([self.x, self.v, self.mark[:, None]], axis=1, dtype=np.float32, casting="same_kind")

    def step(self, push):
        for _ in range(self.substeps):
            gap = self.x[:, 1:] - self.x[:, :-1]
            force = -0.3 * self.v - 0.1 * self.x
            force[:, :-1] += 4.0 * gap
            force[:, 1:] -= 4.0 * gap
            force[:, 0] += 3.0 * push
            self.v += 0.03 * force
            self.x += 0.03 * self.v
        reward = -np.abs(self.x[:, -1] - self.mark)
        self.t += 1
        self._renew(done := self.t >= 200)
        return self.obs(), reward.astype(np.float32), done.astype(np.float32)


class Digest:
    """Remembers the latest rewards and sums them up for the log."""

    def __init__(self, room):
        self.kept, self.total, self.latest = np.zeros(room, np.float32), 0, {}

    def note(self, rewards):
        at = (self.total + np.arange(len(rewards))) % len(self.kept)
        self.kept[at] = rewards
        self.total += len(rewards)
        if not FIXED:
            self.latest = self.summary()

    def summary(self):
        seen = self.kept[:min(self.total, len(self.kept))]
        low, mid, high = np.percentile(seen, [5, 50, 95])
        return {"low": low, "median": mid, "high": high, "mean": seen.mean(), "dev": seen.std()}


class Policy(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.mean, self.value = nn.Linear(64, 1), nn.Linear(64, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Normal(self.mean(h).squeeze(-1), self.log_std.exp(), validate_args=False), self.value(h).squeeze(-1)


def advantages(rew, val, done, last, gamma=0.98, lam=0.95):
    adv, run = torch.zeros_like(rew), torch.zeros_like(last)
    for t in reversed(range(len(rew))):
        nxt = last if t == len(rew) - 1 else val[t + 1]
        run = rew[t] + gamma * nxt * (1 - done[t]) - val[t] + gamma * lam * (1 - done[t]) * run
        adv[t] = run
    return adv


def main(n=64, horizon=64, rounds=30):
    torch.set_num_threads(1), torch.manual_seed(6)
    env, digest, policy = Tethers(n, 6), Digest(6_000), Policy(11)
    opt = torch.optim.Adam(policy.parameters(), 3e-4)
    obs, updates, log = torch.from_numpy(env.obs()), 0, []
    O, A, L, V, R, D = torch.zeros(horizon, n, 11), *(torch.zeros(horizon, n) for _ in range(5))
    start = time.perf_counter()
    for _ in range(rounds):
        for t in range(horizon):
            with torch.no_grad():
                dist, V[t] = policy(obs)
                act = dist.sample()
            O[t], A[t], L[t] = obs, act, dist.log_prob(act)
            nxt, rew, done = env.step(act.clamp(-1, 1).numpy())
            digest.note(rew)
            R[t], D[t], obs = torch.from_numpy(rew), torch.from_numpy(done), torch.from_numpy(nxt)
        with torch.no_grad():
            adv = advantages(R, V, D, policy(obs)[1])
        ret, flat = (adv + V).flatten(), [x.flatten(0, 1) for x in (O, A, L, adv)]
        for _ in range(4):
            for idx in torch.randperm(n * horizon).split(1024):
                o, a, l, ad = (x[idx] for x in flat)
                dist, value = policy(o)
                ratio = (dist.log_prob(a) - l).exp()
                ad = (ad - ad.mean()) / (ad.std() + 1e-8)
                loss = -torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean() + 0.5 * (value - ret[idx]).pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                updates += 1
        log.append(digest.summary() if FIXED else digest.latest)
    seconds = time.perf_counter() - start
    print(f"env_steps={rounds * horizon * n} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
