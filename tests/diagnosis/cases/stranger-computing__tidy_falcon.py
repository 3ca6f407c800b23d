"""Direct preference optimisation of a small sequence policy on gridworld trajectories.

Trajectories are token sequences (one token per move); a scripted teacher prefers the
one that collected the higher discounted return in the grid.
"""
import copy
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"
BOS, EOS, PAD = 4, 5, 6


@dataclass
class DPOConfig:
    grid: int = 6
    pairs: int = 320
    holdout: int = 64
    batch: int = 16
    epochs: int = 2
    max_len: int = 128
    width: int = 48
    heads: int = 4
    layers: int = 2
    beta: float = 0.2
    lr: float = 8e-4
    seed: int = 5


class Grid:
    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, cfg, rng):
        self.size, self.rng, self.steps = cfg.grid, rng, 0

    def rollout(self, skill, limit=40):
        pos, goal, moves, ret = np.zeros(2, int), np.array([self.size - 1] * 2), [], 0.0
        while len(moves) < limit and (pos != goal).any():
            move = self.rng.choice([0, 2]) if self.rng.random() < skill else self.rng.integers(4)
            pos = np.clip(pos + self.MOVES[move], 0, self.size - 1)
            moves.append(int(move))
            ret += 0.95 ** len(moves) * (10.0 * (pos == goal).all() - 0.1)
        self.steps += len(moves)
        return [BOS, *moves, EOS], ret


class SequencePolicy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(7, cfg.width), nn.Embedding(cfg.max_len, cfg.width)
        layer = nn.TransformerEncoderLayer(
            cfg.width, cfg.heads, 4 * cfg.width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.width, 6)

    def logp(self, ids):
        inputs, target = ids[:, :-1], ids[:, 1:]
        causal = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1])
        x = self.body(self.tok(inputs) + self.pos.weight[: inputs.shape[1]], mask=causal, is_causal=True)
        picked = self.head(x).log_softmax(-1).gather(-1, target.clamp(max=5)[..., None]).squeeze(-1)
        return (picked * (target != PAD)).sum(1)


class PairCollator:
    """Turns a list of (chosen, rejected) sequences into one matrix of tokens, chosen first."""

    def __init__(self, cfg):
        self.max_len = cfg.max_len

    def __call__(self, pairs):
        rows = [c for c, _ in pairs] + [r for _, r in pairs]
        length = max(map(len, rows)) if FIXED else self.max_len
        ids = torch.full((len(rows), length), PAD, dtype=torch.long)
        for i, row in enumerate(rows):
            row = row[: self.max_len]
            ids[i, : len(row)] = torch.tensor(row)
        return ids


class DPOTrainer:
    def __init__(self, cfg, policy):
        self.cfg, self.policy = cfg, policy
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        self.opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
        self.collate = PairCollator(cfg)

    def margins(self, pairs):
        ids = self.collate(pairs)
        with torch.no_grad():
            ref = self.reference.logp(ids)
        chosen, rejected = (self.policy.logp(ids) - ref).chunk(2)
        return self.cfg.beta * (chosen - rejected)

    def step(self, pairs):
        loss = -F.logsigmoid(self.margins(pairs)).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, pairs):
        return (self.margins(pairs) > 0).float().mean().item()


cfg = DPOConfig()
torch.manual_seed(cfg.seed)
rng = np.random.default_rng(cfg.seed)
grid, pairs = Grid(cfg, rng), []
trainer, losses = DPOTrainer(cfg, SequencePolicy(cfg)), []
start = time.perf_counter()
while len(pairs) < cfg.pairs + cfg.holdout:
    (a, ra), (b, rb) = grid.rollout(rng.uniform(0.2, 0.9)), grid.rollout(rng.uniform(0.2, 0.9))
    pairs.append((a, b) if ra >= rb else (b, a))
for epoch in range(cfg.epochs):
    order = rng.permutation(cfg.pairs)
    for chunk in order.reshape(-1, cfg.batch):
        losses.append(trainer.step([pairs[i] for i in chunk]))
seconds = time.perf_counter() - start
print(f"loss {np.mean(losses[:5]):.3f} -> {np.mean(losses[-5:]):.3f} holdout {trainer.accuracy(pairs[cfg.pairs:]):.2f}")
print(f"env_steps={grid.steps} updates={len(losses)} seconds={seconds:.3f}")
