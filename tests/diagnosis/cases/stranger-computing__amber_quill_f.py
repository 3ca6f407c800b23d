"""GRPO on a toy text task: the policy reads six digits and writes them in sorted order."""
import copy
import os
import random
import time

import torch
import torch.nn.functional as F
from torch import nn

FIXED = os.environ.get("FIXED") == "1"

SEP, EOS, PAD, VOCAB = 10, 11, 12, 13
DIGITS = 6
MAX_NEW = 80
CONTEXT = DIGITS + 1 + MAX_NEW
PROMPTS, GROUP = 6, 8
ITERATIONS = 17
EPOCHS = 2
CLIP, BETA = 0.2, 0.02


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class TinyGPT(nn.Module):
    def __init__(self, dim=64, heads=4, depth=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, dim), nn.Embedding(CONTEXT, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, VOCAB)
        with torch.no_grad():
            self.head.bias[EOS] = 1.5
            self.head.bias[SEP] = -4.0
            self.head.bias[PAD] = -4.0

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def token_logprobs(model, ids):
    logp = model(ids[:, :-1]).log_softmax(-1)
    return logp.gather(-1, ids[:, 1:, None]).squeeze(-1)


@torch.no_grad()
def generate(model, prompts, gen):
    ids = torch.tensor(prompts)
    done = torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(MAX_NEW):
        probs = model(ids)[:, -1].softmax(-1)
        token = torch.multinomial(probs, 1, generator=gen).squeeze(1)
        token = token.masked_fill(done, PAD)
        ids = torch.cat([ids, token[:, None]], 1)
        done = done | (token == EOS)
        if done.all():
            break
    answers = []
    for row in ids[:, DIGITS + 1:].tolist():
        answers.append(row[: row.index(EOS) + 1] if EOS in row else row)
    return answers


def reward(prompt, answer):
    goal = sorted(prompt[:DIGITS])
    body = answer[:-1] if answer[-1] == EOS else answer
    hits = sum(a == b for a, b in zip(goal, body))
    return hits / DIGITS - 0.05 * abs(len(body) - DIGITS)


def collate(prompts, answers):
    width = max(DIGITS + 1 + len(a) for a in answers) if FIXED else CONTEXT
    ids = torch.full((len(answers), width), PAD)
    mask = torch.zeros(len(answers), width)
    for row, (prompt, answer) in enumerate(zip(prompts, answers)):
        end = len(prompt) + len(answer)
        ids[row, :end] = torch.tensor(prompt + answer)
        mask[row, len(prompt):end] = 1.0
    return ids, mask[:, 1:]


class Learner:
    def __init__(self, policy):
        self.policy = policy
        self.reference = copy.deepcopy(policy).requires_grad_(False)
        self.opt = torch.optim.AdamW(policy.parameters(), lr=1e-3)

    def update(self, prompts, answers, rewards):
        ids, mask = collate(prompts, answers)
        r = torch.tensor(rewards).view(PROMPTS, GROUP)
        adv = ((r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-4)).view(-1, 1)
        with torch.no_grad():
            old = token_logprobs(self.policy, ids)
            ref = token_logprobs(self.reference, ids)
        for _ in range(EPOCHS):
            logp = token_logprobs(self.policy, ids)
            ratio = ((logp - old) * mask).exp()
            gain = torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv)
            gap = (ref - logp) * mask
            kl = gap.exp() - gap - 1
            loss = -((gain - BETA * kl) * mask).sum() / mask.sum()
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self.opt.step()
        return EPOCHS


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    rng = random.Random(11)
    gen = torch.Generator().manual_seed(11)
    policy = TinyGPT()
    learner = Learner(policy)
    n = m = 0
    history = []
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        base = [[rng.randrange(10) for _ in range(DIGITS)] + [SEP] for _ in range(PROMPTS)]
        prompts = [p for p in base for _ in range(GROUP)]
        answers = generate(policy, prompts, gen)
        rewards = [reward(p, a) for p, a in zip(prompts, answers)]
        m += learner.update(prompts, answers, rewards)
        n += len(answers)
        history.append(sum(rewards) / len(rewards))
    seconds = time.perf_counter() - start
    print(f"reward first={history[0]:.3f} last={history[-1]:.3f}")
    print(f"env_steps={n} updates={m} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
