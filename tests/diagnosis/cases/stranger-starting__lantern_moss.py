"""Offline decision transformer on a signpost task: a sign seen at the start decides where to turn at the end."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
OBS, ACTIONS, STEPS, DIM, HEADS = 5, 3, 12, 32, 2
EPISODES, BATCH, EPOCHS, WALKERS = 128, 32, 90, 8


class Signpost:
    """n walkers at once; coins lie left or right of the way, the sign at the start tells the last turn."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng

    def reset(self):
        self.t, self.sign = 0, self.rng.integers(0, 2, self.n)
        return self.observe()

    def observe(self):
        obs = np.zeros((self.n, OBS), np.float32)
        self.coin = self.rng.integers(0, ACTIONS, self.n)
        obs[np.arange(self.n), self.coin] = 1.0
        obs[:, 3] = 2.0 * self.sign - 1.0 if self.t == 0 else 0.0
        obs[:, 4] = self.t / STEPS
        return obs

    def step(self, action):
        last = self.t == STEPS - 1
        reward = (action == self.sign) * 2.0 if last else (action == self.coin) * 0.1
        self.t += 1
        return self.observe(), reward.astype(np.float32), last


def record(rng, skill):
    """Episodes of a guide who knows the sign and makes mistakes."""
    env, rows = Signpost(EPISODES, rng), []
    obs, last = env.reset(), False
    while not last:
        best = env.sign if env.t == STEPS - 1 else env.coin
        action = np.where(rng.random(EPISODES) < skill, best, rng.integers(0, ACTIONS, EPISODES))
        following, reward, last = env.step(action)
        rows.append((obs, action, reward))
        obs = following
    return [np.stack(x, 1) for x in zip(*rows)]


class Episodes(Dataset):
    def __init__(self, obs, act, rew):
        self.obs, self.act = obs, act
        self.to_go = np.ascontiguousarray(rew[:, ::-1].cumsum(1)[:, ::-1])

    def __len__(self):
        return len(self.obs)

    def __getitem__(self, i):
        return tuple(torch.from_numpy(x[i]) for x in (self.to_go, self.obs, self.act))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(self.norm2(x))


class DecisionTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rtg, self.obs, self.act = nn.Linear(1, DIM), nn.Linear(OBS, DIM), nn.Embedding(ACTIONS, DIM)
        self.time, self.body = nn.Embedding(STEPS, DIM), nn.Sequential(Block(), Block(), nn.LayerNorm(DIM))
        self.head = nn.Linear(DIM, ACTIONS)

    def forward(self, to_go, obs, act):
        tokens = torch.stack([self.rtg(to_go.unsqueeze(-1)), self.obs(obs), self.act(act)], 2)
        tokens = tokens + self.time.weight[: obs.shape[1], None]
        return self.head(self.body(tokens.flatten(1, 2))[:, 1::3])


def train_epoch(model, optimizer, loader):
    updates = 0
    for to_go, obs, act in loader:
        loss = F.cross_entropy(model(to_go, obs, act).flatten(0, 1), act.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    return updates


@torch.no_grad()
def evaluate(model, env, goal=3.1):
    to_go, obs = torch.full((env.n, STEPS), goal), torch.zeros(env.n, STEPS, OBS)
    act, total, seen = torch.zeros(env.n, STEPS, dtype=torch.long), 0.0, env.reset()
    for t in range(STEPS):
        obs[:, t] = torch.from_numpy(seen)
        logits = model(to_go[:, : t + 1], obs[:, : t + 1], act[:, : t + 1])[:, -1]
        act[:, t] = logits.argmax(-1)
        seen, reward, _ = env.step(act[:, t].numpy())
        total += reward.mean()
        if t + 1 < STEPS:
            to_go[:, t + 1] = to_go[:, t] - torch.from_numpy(reward)
    return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    data = Episodes(*record(rng, 0.8))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=FIXED)
    model, env = DecisionTransformer(), Signpost(WALKERS, rng)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    env_steps, updates, scores = 0, 0, []
    start = time.perf_counter()
    for _ in range(EPOCHS):
        updates += train_epoch(model, optimizer, loader)
        scores.append(evaluate(model, env))
        env_steps += WALKERS * STEPS
    seconds = time.perf_counter() - start
    del loader
    print(f"score={np.mean(scores[-10:]):.2f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
