"""RLOO for a tiny causal transformer that writes sums hitting a target number.

The answers are Python expressions, so they are evaluated outside of the trainer's process.
"""
import copy
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

CHARS = "0123456789+-=:"
INDEX = {c: i for i, c in enumerate(CHARS)}
END = INDEX["="]
PROMPT, ANSWER = 3, 8
PROMPTS, SAMPLES = 16, 4
ITERATIONS = 100
BETA = 0.03
WORKERS = 6


class TinyGPT(nn.Module):
    def __init__(self, dim=48, heads=4):
        super().__init__()
        self.heads = heads
        self.tok, self.pos = nn.Embedding(len(CHARS), dim), nn.Embedding(PROMPT + ANSWER, dim)
        self.ln1, self.ln2, self.ln3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.head = nn.Linear(dim, len(CHARS))

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        x = x + self.mlp(self.ln2(x))
        return self.head(self.ln3(x)).log_softmax(-1)


def check(job):
    target, text = job
    body = text.partition("=")[0]
    try:
        value = eval(compile(body, "<answer>", "eval"), {"__builtins__": {}})
    except Exception:
        return -1.0
    bonus = 0.5 if ("+" in body or "-" in body) else 0.0
    return bonus + 1.0 - min(abs(value - target), 50) / 50


class Verifier:
    def __init__(self, workers):
        self.workers = workers
        self.pool = None

    def start(self):
        return ProcessPoolExecutor(self.workers, mp_context=get_context("fork"))

    def score(self, jobs):
        if FIXED:
            self.pool = self.pool or self.start()
            return list(self.pool.map(check, jobs, chunksize=8))
        with self.start() as pool:
            return list(pool.map(check, jobs, chunksize=8))

    def close(self):
        if self.pool is not None:
            self.pool.shutdown()


@torch.no_grad()
def generate(model, prompts, gen):
    ids = prompts
    for _ in range(ANSWER):
        probs = model(ids)[:, -1].exp()
        ids = torch.cat([ids, torch.multinomial(probs, 1, generator=gen)], 1)
    answer = ids[:, PROMPT:]
    ended = (answer == END).long().cumsum(1)
    mask = ((ended == 0) | ((ended == 1) & (answer == END))).float()
    return ids, mask


def answer_logprob(model, ids, mask):
    logp = model(ids[:, :-1]).gather(-1, ids[:, 1:, None]).squeeze(-1)
    return (logp[:, PROMPT - 1:] * mask).sum(1)


def update(policy, reference, opt, ids, mask, scores):
    with torch.no_grad():
        ref = answer_logprob(reference, ids, mask)
    logp = answer_logprob(policy, ids, mask)
    total = (scores - BETA * (logp.detach() - ref)).view(PROMPTS, SAMPLES)
    baseline = (total.sum(1, keepdim=True) - total) / (SAMPLES - 1)
    loss = -((total - baseline).view(-1) * logp).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    rng = random.Random(7)
    gen = torch.Generator().manual_seed(7)
    policy = TinyGPT()
    reference = copy.deepcopy(policy).requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    verifier = Verifier(WORKERS)
    n = m = 0
    means = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        targets = [rng.randrange(10, 100) for _ in range(PROMPTS)]
        targets = [t for t in targets for _ in range(SAMPLES)]
        prompts = torch.tensor([[INDEX[c] for c in f"{t}:"] for t in targets])
        ids, mask = generate(policy, prompts, gen)
        texts = ["".join(CHARS[i] for i in row) for row in ids[:, PROMPT:].tolist()]
        scores = verifier.score(list(zip(targets, texts)))
        update(policy, reference, opt, ids, mask, torch.tensor(scores))
        n += len(texts)
        m += 1
        means.append(sum(scores) / len(scores))
    seconds = time.perf_counter() - start
    verifier.close()
    print(f"score first={means[0]:.3f} last={means[-1]:.3f}")
    print(f"env_steps={n} updates={m} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
