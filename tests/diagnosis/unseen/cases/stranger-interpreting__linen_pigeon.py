"""A tiny decoder-only transformer learns with REINFORCE to write sequences that a hidden scorer likes."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"

VOCAB, WIDTH, HEADS, LAYERS = 20, 32, 2, 2
LENGTH, BATCH = 192, 64
ITERATIONS, NGRAM = 8, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, memory=None, at=None):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        if memory is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            memory[0][:, :, at] = k[:, :, 0]
            memory[1][:, :, at] = v[:, :, 0]
            y = F.scaled_dot_product_attention(q, memory[0][:, :, :at + 1], memory[1][:, :, :at + 1])
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.n2(x))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB + 1, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def step(self, token, at, memory):
        x = self.tok(token)[:, None] + self.pos.weight[at]
        for block, cell in zip(self.blocks, memory):
            x = block(x, cell, at)
        return self.head(self.norm(x))[:, 0]


class NoRepeat:
    """Forbids the tokens that would complete an n-gram the sequence already holds."""

    def __init__(self, size):
        self.size = size

    def __call__(self, text):
        n = self.size
        banned = torch.zeros(text.shape[0], VOCAB, dtype=torch.bool)
        if text.shape[1] < n:
            return banned
        if FIXED:
            windows = text.unfold(1, n, 1)
            match = (windows[..., :-1] == text[:, None, 1 - n:]).all(-1)
            rows, places = match.nonzero(as_tuple=True)
            banned[rows, windows[rows, places, -1]] = True
            return banned
        for row, tokens in enumerate(text.tolist()):
            follow = {}
            for gram in zip(*[tokens[i:] for i in range(n)]):
                follow.setdefault(gram[:-1], []).append(gram[-1])
            for token in follow.get(tuple(tokens[1 - n:]), []):
                banned[row, token] = True
        return banned


class Scorer:
    """Likes neighbours whose sum is in its list, and every token used about equally often."""

    def __init__(self):
        self.liked = torch.zeros(2 * VOCAB, dtype=torch.float32)
        self.liked[[7, 11, 18, 23, 29]] = 1.0

    def __call__(self, text):
        pairs = self.liked[text[:, 1:] + text[:, :-1]].mean(1)
        share = F.one_hot(text, VOCAB).float().mean(1)
        return pairs - 2.0 * (share - 1.0 / VOCAB).pow(2).sum(1)


@torch.no_grad()
def write(model, rule):
    size = (BATCH, HEADS, LENGTH, WIDTH // HEADS)
    memory = [(torch.zeros(size), torch.zeros(size)) for _ in range(LAYERS)]
    text = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    masks = torch.zeros(BATCH, LENGTH, VOCAB, dtype=torch.bool)
    token = torch.full((BATCH,), VOCAB)
    for at in range(LENGTH):
        logits = model.step(token, at, memory)
        mask = rule(text[:, :at])
        mask[mask.all(1)] = False
        masks[:, at] = mask
        token = torch.multinomial(logits.masked_fill(mask, -1e9).softmax(-1), 1).squeeze(1)
        text[:, at] = token
    return text, masks


def improve(model, opt, text, masks, reward):
    start = torch.full((BATCH, 1), VOCAB)
    logits = model(torch.cat([start, text[:, :-1]], 1)).masked_fill(masks, -1e9)
    logp = logits.log_softmax(-1).gather(2, text[..., None]).squeeze(-1)
    adv = (reward - reward.mean()) / (reward.std() + 1e-6)
    loss = -(adv[:, None] * logp).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model, rule, scorer = Writer(), NoRepeat(NGRAM), Scorer()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        text, masks = write(model, rule)
        reward = scorer(text)
        improve(model, opt, text, masks, reward)
    seconds = time.perf_counter() - start
    print(f"mean score {reward.mean().item():.3f}")
    print(f"env_steps={ITERATIONS * BATCH * LENGTH} updates={ITERATIONS} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
