"""PPO with a visitation bonus in a batch of point mazes (single file, numpy simulator)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

SEED, N_ENVS, HORIZON, ITERS = 3, 192, 48, 60
GAMMA, LAM, CLIP, BETA, BITS = 0.99, 0.95, 0.2, 0.05, 20


class PointMazes:
    """N points in the unit square; a wall with a gap; reward in the upper right corner."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]], dtype=np.float32) * 0.06

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.pos = np.zeros((n, 2), dtype=np.float32)
        self.t = rng.integers(0, 100, n)
        self._restart(np.ones(n, dtype=bool))

    def _restart(self, mask):
        self.pos[mask] = self.rng.uniform(0.0, 0.4, (int(mask.sum()), 2))
        self.t[mask] = 0

    def observe(self):
        return np.concatenate([self.pos, np.sin(7 * self.pos), np.cos(7 * self.pos)], axis=1)

    def step(self, action):
        new = self.pos + self.MOVES[action] + self.rng.normal(0, 0.01, self.pos.shape).astype(np.float32)
        new = np.clip(new, 0.0, 1.0)
        crosses = (self.pos[:, 0] < 0.5) != (new[:, 0] < 0.5)
        blocked = crosses & (new[:, 1] < 0.5)
        self.pos = np.where(blocked[:, None], self.pos, new)
        self.t += 1
        goal = (self.pos > 0.8).all(axis=1)
        done = goal | (self.t >= 100)
        self._restart(done)
        return self.observe(), goal.astype(np.float32), done.astype(np.float32)


class VisitBonus:
    """Counts of random-projection codes of the observation, bonus = beta / sqrt(count)."""

    def __init__(self, obs_dim, rng):
        self.proj = rng.normal(size=(obs_dim, BITS)).astype(np.float32)
        self.shift = rng.normal(size=BITS).astype(np.float32)
        self.table = {}
        self.counts = np.zeros(1 << BITS, dtype=np.int64)
        self.powers = 1 << np.arange(BITS)

    def __call__(self, obs):
        code = obs @ self.proj > self.shift
        if FIXED:
            keys = code @ self.powers
            np.add.at(self.counts, keys, 1)
            return (BETA / np.sqrt(self.counts[keys])).astype(np.float32)
        bonus = np.zeros(len(obs), dtype=np.float32)
        for i, row in enumerate(code):
            key = "".join("1" if bit else "0" for bit in row)
            self.table[key] = self.table.get(key, 0) + 1
            bonus[i] = BETA / np.sqrt(self.table[key])
        return bonus


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh())
        self.pi, self.v = nn.Linear(40, n_act), nn.Linear(40, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def main():
    rng = np.random.default_rng(SEED)
    torch.manual_seed(SEED)
    envs = PointMazes(N_ENVS, rng)
    bonus = VisitBonus(6, rng)
    net = ActorCritic(6, 5)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    B_obs = torch.zeros(HORIZON, N_ENVS, 6)
    B_act = torch.zeros(HORIZON, N_ENVS, dtype=torch.long)
    B_logp, B_val = torch.zeros(HORIZON, N_ENVS), torch.zeros(HORIZON + 1, N_ENVS)
    B_rew, B_done = np.zeros((HORIZON, N_ENVS), np.float32), np.zeros((HORIZON, N_ENVS), np.float32)
    obs = envs.observe()
    env_steps = updates = 0
    start = time.perf_counter()
    for it in range(ITERS):
        goals = 0.0
        for t in range(HORIZON):
            x = torch.from_numpy(obs)
            with torch.no_grad():
                logits, value = net(x)
            dist = Categorical(logits=logits, validate_args=False)
            act = dist.sample()
            B_obs[t], B_act[t], B_logp[t], B_val[t] = x, act, dist.log_prob(act), value
            obs, rew, B_done[t] = envs.step(act.numpy())
            goals += rew.sum()
            B_rew[t] = rew + bonus(obs)
            env_steps += N_ENVS
        with torch.no_grad():
            B_val[HORIZON] = net(torch.from_numpy(obs))[1]
        rew, live, adv = torch.from_numpy(B_rew), 1 - torch.from_numpy(B_done), torch.zeros(HORIZON, N_ENVS)
        last = torch.zeros(N_ENVS)
        for t in reversed(range(HORIZON)):
            delta = rew[t] + GAMMA * live[t] * B_val[t + 1] - B_val[t]
            last = adv[t] = delta + GAMMA * LAM * live[t] * last
        ret = (adv + B_val[:-1]).flatten()
        o, a, lp, ad = B_obs.flatten(0, 1), B_act.flatten(), B_logp.flatten(), adv.flatten()
        ad = (ad - ad.mean()) / (ad.std() + 1e-8)
        for _ in range(2):
            for idx in torch.randperm(len(a)).split(2304):
                logits, value = net(o[idx])
                dist = Categorical(logits=logits, validate_args=False)
                ratio = (dist.log_prob(a[idx]) - lp[idx]).exp()
                surr = torch.min(ratio * ad[idx], ratio.clamp(1 - CLIP, 1 + CLIP) * ad[idx])
                loss = -surr.mean() + 0.5 * (value - ret[idx]).pow(2).mean() - 0.01 * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                updates += 1
        if it % 10 == 0:
            print(f"iter {it} goals {goals:.0f} loss {loss.item():.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
