"""Rooms with a far goal: actor-critic driven by an episodic novelty bonus over learned embeddings."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

EPISODE, EPISODES, ROLLOUT = 1000, 15, 100
EMBED, NEIGHBOURS, GAMMA = 16, 10, 0.99
MOVES = [(0.0, 0.0), (0.06, 0.0), (-0.06, 0.0), (0.0, 0.06), (0.0, -0.06)]


class Rooms:
    """Two rooms joined by a door; the goal lies in the far corner of the second."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.x, self.y = self.rng.uniform(0.05, 0.3, 2).tolist()
        self.vx = self.vy = 0.0
        return self.observe()

    def observe(self):
        return np.array([self.x, self.y, self.vx * 10, self.vy * 10], dtype=np.float32)

    def step(self, action):
        ax, ay = MOVES[action]
        self.vx, self.vy = 0.7 * self.vx + 0.5 * ax, 0.7 * self.vy + 0.5 * ay
        x = min(max(self.x + self.vx, 0.0), 2.0)
        y = min(max(self.y + self.vy, 0.0), 1.0)
        if (self.x < 1.0) != (x < 1.0) and not 0.4 < y < 0.6:
            x, self.vx = self.x, 0.0
        self.x, self.y = x, y
        return self.observe(), 1.0 if math.hypot(x - 1.9, y - 0.9) < 0.15 else 0.0


class EpisodicNovelty:
    """Bonus from the distance to the nearest embeddings of this episode."""

    def __init__(self):
        self.table = np.zeros((EPISODE, EMBED), dtype=np.float32)
        self.scale = 1e-3
        self.forget()

    def forget(self):
        self.count, self.seen = 0, []

    def add(self, embedding):
        self.table[self.count] = embedding
        self.count += 1
        self.seen.append(embedding)

    def known(self):
        if FIXED:
            return self.table[:self.count]
        return np.stack(self.seen)

    def bonus(self, embedding):
        if self.count <= NEIGHBOURS:
            self.add(embedding)
            return 0.0
        gaps = self.known() - embedding
        near = np.partition(np.einsum("ij,ij->i", gaps, gaps), NEIGHBOURS)[:NEIGHBOURS]
        self.scale += 0.01 * (float(near.mean()) - self.scale)
        kernel = 1e-3 / (near / max(self.scale, 1e-8) + 1e-3)
        self.add(embedding)
        return 1.0 / math.sqrt(float(kernel.sum()) + 1e-3) / 30.0


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, len(MOVES)), nn.Linear(64, 1)
        self.embed = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, EMBED))
        self.inverse = nn.Linear(2 * EMBED, len(MOVES))

    def forward(self, obs):
        h = self.body(obs)
        return self.policy(h), self.value(h).squeeze(-1)


def improve(agent, optimizer, rows, last):
    obs, following = (torch.from_numpy(np.array([r[i] for r in rows])) for i in (0, 1))
    actions = torch.tensor([r[2] for r in rows])
    with torch.no_grad():
        ret = float(agent(torch.from_numpy(last))[1])
    returns = []
    for row in reversed(rows):
        ret = row[3] + GAMMA * ret
        returns.append(ret)
    returns = torch.tensor(returns[::-1])
    logits, values = agent(obs)
    logp = F.log_softmax(logits, -1)
    advantage = returns - values.detach()
    guess = agent.inverse(torch.cat([agent.embed(obs), agent.embed(following)], -1))
    loss = (-(advantage * logp[torch.arange(len(rows)), actions]).mean() + 0.5 * F.mse_loss(values, returns)
            + 0.01 * (logp.exp() * logp).sum(-1).mean() + F.cross_entropy(guess, actions))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.manual_seed(8)
    rng, env, agent, novelty = np.random.default_rng(8), Rooms(8), Agent(), EpisodicNovelty()
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)
    steps = updates = 0
    begin = time.perf_counter()
    for episode in range(EPISODES):
        obs, rows, found, wonder = env.reset(), [], 0.0, 0.0
        novelty.forget()
        for _ in range(EPISODE):
            with torch.no_grad():
                x = torch.from_numpy(obs)
                probs, embedding = agent(x)[0].softmax(-1), agent.embed(x).numpy()
            action = min(int(np.searchsorted(probs.numpy().cumsum(), rng.random())), len(MOVES) - 1)
            following, reward = env.step(action)
            bonus = novelty.bonus(embedding)
            rows.append((obs, following, action, reward + bonus))
            found, wonder, obs, steps = found + reward, wonder + bonus, following, steps + 1
            if len(rows) == ROLLOUT:
                improve(agent, optimizer, rows, obs)
                updates += 1
                rows = []
        print(f"episode {episode}: goal steps {found:.0f} novelty {wonder:.2f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
