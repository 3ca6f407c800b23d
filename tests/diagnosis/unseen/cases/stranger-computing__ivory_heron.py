"""Recurrent PPO on a vectorised cue-recall task (remember the symbol shown at the start)."""
import os
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

N_ENVS, HORIZON, SYMBOLS = 16, 96, 4
ITERS, EPOCHS, HIDDEN = 60, 2, 48
CLIP, GAMMA, LAM = 0.2, 0.97, 0.95


class RecallVec:
    """A cue is visible for the first step; later a 'go' light asks for it again, several times."""

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.dim = SYMBOLS + 2

    def reset(self):
        self.t = 0
        self.cue = self.rng.integers(SYMBOLS, size=self.n)
        self.go = self.rng.random((HORIZON + 1, self.n)) < 0.25
        self.go[0] = False
        return self._obs()

    def _obs(self):
        obs = np.zeros((self.n, self.dim), np.float32)
        if self.t == 0:
            obs[np.arange(self.n), self.cue] = 1.0
        obs[:, SYMBOLS] = self.go[self.t]
        obs[:, SYMBOLS + 1] = self.t / HORIZON
        return obs

    def step(self, action):
        reward = np.where(self.go[self.t], np.where(action == self.cue, 1.0, -0.3), -0.05 * (action != 0))
        self.t += 1
        return self._obs(), reward.astype(np.float32), self.t == HORIZON


class Agent(nn.Module):
    def __init__(self, obs_dim, n_act):
        super().__init__()
        self.enc = nn.Linear(obs_dim, HIDDEN)
        self.core = nn.LSTM(HIDDEN, HIDDEN)
        self.pi = nn.Linear(HIDDEN, n_act)
        self.v = nn.Linear(HIDDEN, 1)

    def forward(self, obs, state=None):
        # obs: [T, N, obs_dim]
        h, state = self.core(torch.relu(self.enc(obs)), state)
        return self.pi(h), self.v(h).squeeze(-1), state

    @torch.no_grad()
    def act(self, seen, t, state):
        if FIXED:
            logits, value, state = self(seen[t:t + 1], state)
        else:
            logits, value, _ = self(seen[:t + 1])
        dist = Categorical(logits=logits[-1], validate_args=False)
        action = dist.sample()
        return action, dist.log_prob(action), value[-1], state


def collect(env, agent):
    obs = torch.zeros(HORIZON, N_ENVS, env.dim)
    act = torch.zeros(HORIZON, N_ENVS, dtype=torch.long)
    logp, val, rew = (torch.zeros(HORIZON, N_ENVS) for _ in range(3))
    o, state = env.reset(), None
    for t in range(HORIZON):
        obs[t] = torch.from_numpy(o)
        act[t], logp[t], val[t], state = agent.act(obs, t, state)
        o, r, _ = env.step(act[t].numpy())
        rew[t] = torch.from_numpy(r)
    adv, last = torch.zeros_like(rew), torch.zeros(N_ENVS)
    for t in reversed(range(HORIZON)):
        nxt = val[t + 1] if t + 1 < HORIZON else torch.zeros(N_ENVS)
        last = rew[t] + GAMMA * nxt - val[t] + GAMMA * LAM * last
        adv[t] = last
    return obs, act, logp, adv, adv + val, rew.sum(0).mean().item()


def improve(agent, opt, obs, act, logp, adv, ret):
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(EPOCHS):
        logits, value, _ = agent(obs)
        dist = Categorical(logits=logits, validate_args=False)
        ratio = (dist.log_prob(act) - logp).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
        loss = pg + 0.5 * (value - ret).square().mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()


def main():
    torch.manual_seed(5)
    env = RecallVec(N_ENVS, seed=5)
    agent = Agent(env.dim, SYMBOLS)
    opt = torch.optim.Adam(agent.parameters(), lr=2e-3)
    steps = updates = 0
    start = time.perf_counter()
    for it in range(ITERS):
        *batch, score = collect(env, agent)
        improve(agent, opt, *batch)
        steps += HORIZON * N_ENVS
        updates += EPOCHS
        if it % 12 == 0:
            print(f"iter {it:3d} score {score:.2f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


main()
