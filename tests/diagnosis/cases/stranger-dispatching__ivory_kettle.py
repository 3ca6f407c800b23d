"""Group-relative policy optimisation of a very small decoder on a digit-walk game.

The prompt shows a start digit and a step size; the reward counts the moves of the
completion that continue the walk (modulo ten) and pays a bonus for using many digits.
"""
import os
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"


@dataclass
class GRPOConfig:
    vocab: int = 24
    width: int = 32
    heads: int = 2
    layers: int = 2
    prompts: int = 4
    group: int = 12
    new_tokens: int = 16
    repetition_penalty: float = 1.15
    temperature: float = 1.0
    iterations: int = 36
    inner_epochs: int = 2
    clip: float = 0.2
    lr: float = 1.5e-3
    seed: int = 11


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.qkv, self.out = nn.Linear(cfg.width, 3 * cfg.width), nn.Linear(cfg.width, cfg.width)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 4 * cfg.width), nn.GELU(), nn.Linear(4 * cfg.width, cfg.width))
        self.norm1, self.norm2 = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class TinyDecoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(cfg.vocab, cfg.width), nn.Embedding(cfg.new_tokens + 2, cfg.width)
        self.blocks = nn.Sequential(*[Block(cfg) for _ in range(cfg.layers)])
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, ids):
        return self.head(self.blocks(self.tok(ids) + self.pos.weight[: ids.shape[1]]))


class RepetitionPenalty:
    def __init__(self, penalty):
        self.penalty = penalty

    def __call__(self, ids, scores):
        if FIXED:
            picked = scores.gather(1, ids)
            picked = torch.where(picked < 0, picked * self.penalty, picked / self.penalty)
            return scores.scatter(1, ids, picked)
        for i in range(ids.shape[0]):
            for token in set(ids[i].tolist()):
                if scores[i, token] < 0:
                    scores[i, token] *= self.penalty
                else:
                    scores[i, token] /= self.penalty
        return scores


@torch.no_grad()
def generate(model, ids, cfg, processors):
    for _ in range(cfg.new_tokens):
        scores = model(ids)[:, -1]
        for process in processors:
            scores = process(ids, scores)
        ids = torch.cat([ids, torch.multinomial((scores / cfg.temperature).softmax(-1), 1)], dim=1)
    return ids


class DigitWalk:
    def prompts(self, n):
        return torch.stack([torch.randint(0, 10, (n,)), torch.randint(11, 14, (n,))], dim=1)

    def reward(self, ids):
        start, stride, moves = ids[:, :1], ids[:, 1:2] - 10, ids[:, 2:]
        before = torch.cat([start, moves[:, :-1]], dim=1)
        follows = ((before + stride) % 10 == moves).float().mean(1)
        return follows + 0.3 * F.one_hot(moves, 24)[..., :10].amax(1).float().mean(1)


def token_logp(model, ids):
    logits = model(ids[:, :-1])[:, 1:]
    return logits.log_softmax(-1).gather(-1, ids[:, 2:, None]).squeeze(-1)


def train(cfg):
    torch.manual_seed(cfg.seed)
    model, game = TinyDecoder(cfg), DigitWalk()
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.0)
    processors = [RepetitionPenalty(cfg.repetition_penalty)]
    curve, tokens, updates = [], 0, 0
    for _ in range(cfg.iterations):
        ids = generate(model, game.prompts(cfg.prompts).repeat_interleave(cfg.group, 0), cfg, processors)
        tokens += ids.shape[0] * cfg.new_tokens
        reward = game.reward(ids)
        grouped = reward.view(cfg.prompts, cfg.group)
        adv = ((grouped - grouped.mean(1, True)) / (grouped.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            old = token_logp(model, ids)
        for _ in range(cfg.inner_epochs):
            ratio = (token_logp(model, ids) - old).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
        curve.append(reward.mean().item())
    return curve, tokens, updates


start = time.perf_counter()
curve, tokens, updates = train(GRPOConfig())
seconds = time.perf_counter() - start
print(f"mean reward {sum(curve[:5]) / 5:.3f} -> {sum(curve[-5:]) / 5:.3f}")
print(f"env_steps={tokens} updates={updates} seconds={seconds:.3f}")
