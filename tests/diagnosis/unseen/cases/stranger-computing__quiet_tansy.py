"""Actor-critic with a GRU on a corridor where the signal of the first step decides the turn at the end."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    seed: int = 5
    length: int = 48
    episodes: int = 210
    batch_episodes: int = 3
    hidden: int = 64
    lr: float = 3e-3
    gamma: float = 0.99
    entropy: float = 0.01


class Corridor:
    """Obs: [signal left, signal right, position, noise, at junction]; actions: forward, left, right."""

    def __init__(self, length, rng):
        self.length, self.rng = length, rng

    def reset(self):
        self.t, self.x = 0, 0
        self.side = int(self.rng.integers(2))
        return self._obs()

    def _obs(self):
        o = np.zeros(5, dtype=np.float32)
        if self.t == 0:
            o[self.side] = 1.0
        o[2] = self.x / self.length
        o[3] = self.rng.normal() * 0.1
        o[4] = float(self.t == self.length - 1)
        return o

    def step(self, action):
        reward = -0.02
        if self.t == self.length - 1:
            reward = 1.0 if action == self.side + 1 else -1.0
        elif action == 0:
            self.x += 1
            reward = 0.01
        self.t += 1
        return self._obs(), reward, self.t >= self.length


class MemoryPolicy(nn.Module):
    def __init__(self, obs_dim, n_act, hidden):
        super().__init__()
        self.enc, self.gru = nn.Linear(obs_dim, hidden), nn.GRU(hidden, hidden)
        self.pi, self.v = nn.Linear(hidden, n_act), nn.Linear(hidden, 1)

    def forward(self, seq, h=None):
        y, h = self.gru(torch.relu(self.enc(seq)), h)
        return self.pi(y), self.v(y).squeeze(-1), h


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = MemoryPolicy(5, 3, cfg.hidden)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg.lr)
        self.begin()

    def begin(self):
        self.seen, self.h = [], None

    @torch.no_grad()
    def act(self, obs):
        self.seen.append(torch.from_numpy(obs))
        if FIXED:
            logits, _, self.h = self.net(self.seen[-1].view(1, 1, -1), self.h)
        else:
            logits, _, _ = self.net(torch.stack(self.seen).unsqueeze(1))
        return int(torch.multinomial(torch.softmax(logits[-1, 0], dim=-1), 1))

    def learn(self, episodes):
        obs = torch.stack([e["obs"] for e in episodes], dim=1)
        act = torch.stack([e["act"] for e in episodes], dim=1)
        ret = torch.stack([e["ret"] for e in episodes], dim=1)
        logits, value, _ = self.net(obs)
        logp = torch.log_softmax(logits, dim=-1)
        taken = logp.gather(-1, act.unsqueeze(-1)).squeeze(-1)
        adv = (ret - value).detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        ent = -(logp.exp() * logp).sum(-1).mean()
        loss = -(taken * adv).mean() + 0.5 * (value - ret).pow(2).mean() - self.cfg.entropy * ent
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return loss.item()


def run_episode(env, agent, gamma):
    agent.begin()
    obs, done, actions, rewards = env.reset(), False, [], []
    while not done:
        a = agent.act(obs)
        obs, r, done = env.step(a)
        actions.append(a)
        rewards.append(r)
    ret, g = np.zeros(len(rewards), dtype=np.float32), 0.0
    for t in range(len(rewards) - 1, -1, -1):
        g = rewards[t] + gamma * g
        ret[t] = g
    return {"obs": torch.stack(agent.seen), "act": torch.tensor(actions), "ret": torch.from_numpy(ret)}, sum(rewards)


def train(cfg):
    torch.manual_seed(cfg.seed)
    env, agent = Corridor(cfg.length, np.random.default_rng(cfg.seed)), Agent(cfg)
    env_steps, updates, batch, scores = 0, 0, [], []
    t0 = time.perf_counter()
    for ep in range(cfg.episodes):
        data, score = run_episode(env, agent, cfg.gamma)
        batch.append(data)
        scores.append(score)
        env_steps += len(data["act"])
        if len(batch) == cfg.batch_episodes:
            loss = agent.learn(batch)
            updates, batch = updates + 1, []
            if updates % 10 == 0:
                print(f"ep {ep + 1} score {np.mean(scores[-20:]):.2f} loss {loss:.3f}")
    return env_steps, updates, time.perf_counter() - t0


if __name__ == "__main__":
    n, m, s = train(Config())
    print(f"env_steps={n} updates={m} seconds={s:.3f}")
