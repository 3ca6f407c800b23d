"""Recurrent actor-critic on a delayed-recall task: a cue is shown first, the answer is due at the end."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    envs: int = 24
    horizon: int = 48
    cues: int = 4
    hidden: int = 48
    iterations: int = 76
    epochs: int = 4
    gamma: float = 0.98


class DelayedRecall:
    """Batched episodes of a fixed length; the observation is a cue, then noise and a clock."""

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.obs_dim = cfg.cues + 3

    def reset(self):
        self.t = 0
        self.cue = self.rng.integers(self.cfg.cues, size=self.cfg.envs)
        return self._observe()

    def _observe(self):
        obs = np.zeros((self.cfg.envs, self.obs_dim), np.float32)
        if self.t < 3:
            obs[np.arange(self.cfg.envs), self.cue] = 1.0
        obs[:, -3:-1] = self.rng.normal(0, 0.3, (self.cfg.envs, 2))
        obs[:, -1] = self.t / self.cfg.horizon
        return obs

    def step(self, action):
        self.t += 1
        late = self.t > self.cfg.horizon - 8
        reward = (action == self.cue).astype(np.float32) if late else np.zeros(self.cfg.envs, np.float32)
        return self._observe(), reward, self.t >= self.cfg.horizon


class Memory(nn.Module):
    def __init__(self, obs_dim, actions, hidden):
        super().__init__()
        self.hidden = hidden
        self.encoder = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh())
        self.core = nn.GRU(hidden, hidden) if FIXED else nn.GRUCell(hidden, hidden)
        self.policy = nn.Linear(hidden, actions)
        self.value = nn.Linear(hidden, 1)

    def step(self, obs, h):
        x = self.encoder(obs)
        h = self.core(x[None], h[None])[1][0] if FIXED else self.core(x, h)
        return self.policy(h), self.value(h).squeeze(-1), h

    def unroll(self, obs):
        h = torch.zeros(obs.shape[1], self.hidden)
        if FIXED:
            out, _ = self.core(self.encoder(obs), h[None])
            return self.policy(out), self.value(out).squeeze(-1)
        logits, values = [], []
        for t in range(obs.shape[0]):
            logit, value, h = self.step(obs[t], h)
            logits.append(logit)
            values.append(value)
        return torch.stack(logits), torch.stack(values)


def collect(env, net, cfg):
    obs, h, done = env.reset(), torch.zeros(cfg.envs, cfg.hidden), False
    seen, acts, logps, rewards = [], [], [], []
    with torch.no_grad():
        while not done:
            x = torch.from_numpy(obs)
            logits, _, h = net.step(x, h)
            logp = logits.log_softmax(-1)
            a = torch.multinomial(logp.exp(), 1)
            obs, reward, done = env.step(a[:, 0].numpy())
            seen.append(x)
            acts.append(a)
            logps.append(logp.gather(1, a))
            rewards.append(reward)
    return torch.stack(seen), torch.stack(acts), torch.stack(logps), np.stack(rewards)


def learn(net, opt, batch, cfg):
    obs, acts, old, rewards = batch
    weights = cfg.gamma ** np.arange(cfg.horizon)
    returns = np.cumsum((rewards * weights[:, None])[::-1], axis=0)[::-1] / weights[:, None]
    returns = torch.from_numpy(np.ascontiguousarray(returns, np.float32))
    for _ in range(cfg.epochs):
        logits, values = net.unroll(obs)
        logp = logits.log_softmax(-1)
        adv = (returns - values).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        ratio = (logp.gather(2, acts) - old).exp().squeeze(-1)
        gain = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -gain + 0.5 * (returns - values).pow(2).mean() - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()


def main():
    cfg = Config()
    torch.manual_seed(3)
    env = DelayedRecall(cfg, np.random.default_rng(3))
    net = Memory(env.obs_dim, cfg.cues, cfg.hidden)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    start = time.perf_counter()
    for _ in range(cfg.iterations):
        learn(net, opt, collect(env, net, cfg), cfg)
    seconds = time.perf_counter() - start
    print(f"env_steps={cfg.iterations * cfg.horizon * cfg.envs} updates={cfg.iterations * cfg.epochs} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
