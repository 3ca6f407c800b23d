"""A tiny causal transformer learns by policy gradient to sort the digits of its prompt."""
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

VOCAB = 12  # ten digits, separator, filler
SEP, FILL = 10, 11
CONTEXT = 64
BATCH = 32
ITERATIONS = 20


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class SortPolicy(nn.Module):
    def __init__(self, width=64, layers=2, heads=4):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def collate(seqs):
    """Rows of one length, filled up at the end."""
    length = max(len(s) for s in seqs) if FIXED else CONTEXT
    ids = torch.full((len(seqs), length), FILL, dtype=torch.long)
    for row, s in zip(ids, seqs):
        row[: len(s)] = torch.tensor(s)
    return ids


class SortingTask:
    """Prompt: some digits and a separator. The answer earns one point per digit in its right place."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def prompts(self, count):
        return [[*map(int, self.rng.integers(0, 10, self.rng.integers(4, 9))), SEP] for _ in range(count)]

    def rewards(self, prompt, answer):
        return [float(a == b) for a, b in zip(answer, sorted(prompt[:-1]))]


@torch.no_grad()
def answer(policy, prompts):
    seqs = [list(p) for p in prompts]
    steps = 0
    for _ in range(max(len(p) for p in prompts) - 1):
        active = [i for i, p in enumerate(prompts) if len(seqs[i]) < 2 * len(p) - 1]
        logits = policy(collate([seqs[i] for i in active]))
        last = torch.tensor([len(seqs[i]) - 1 for i in active])
        probs = torch.softmax(logits[torch.arange(len(active)), last], -1)
        for i, token in zip(active, torch.multinomial(probs, 1)[:, 0].tolist()):
            seqs[i].append(token)
        steps += len(active)
    return seqs, steps


def main():
    torch.manual_seed(2)
    task, policy = SortingTask(seed=2), SortPolicy()
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    env_steps = updates = 0
    scores = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        prompts = task.prompts(BATCH)
        seqs, steps = answer(policy, prompts)
        env_steps += steps
        ids = collate(seqs)
        gain, used = torch.zeros(ids.shape), torch.zeros(ids.shape)
        for i, (p, s) in enumerate(zip(prompts, seqs)):
            r = torch.tensor(task.rewards(p, s[len(p):]))
            gain[i, len(p) - 1: len(s) - 1] = r
            used[i, len(p) - 1: len(s) - 1] = 1
        scores.append((gain.sum() / used.sum()).item())
        adv = (gain - scores[-1]) * used
        target = torch.roll(ids, -1, 1).clamp(max=9)
        old = None
        for _ in range(4):
            logp = policy(ids).log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
            old = logp.detach() if old is None else old
            ratio = (logp - old).exp()
            surrogate = torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv)
            loss = -surrogate.sum() / used.sum()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            updates += 1
    seconds = time.perf_counter() - start
    print(f"score of the first and last batches {np.mean(scores[:5]):.3f} {np.mean(scores[-5:]):.3f}")
    print(f"env_steps={env_steps} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
