"""Policy gradient on token sequences: a small causal transformer learns to walk through word topics in order."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

VOCAB, TOPICS, WIDTH, HEADS, LAYERS = 2048, 8, 64, 4, 2
BATCH, PROMPT, NEW, ITERATIONS = 32, 8, 32, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Embedding(PROMPT + NEW, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def trunk(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens):
        return self.head(self.trunk(tokens))


class TopicWalk:
    """Each new word earns 1 when its topic follows the topic of the word before."""

    def __init__(self, generator):
        self.generator = generator

    def prompts(self, count):
        return torch.randint(VOCAB, (count, PROMPT), generator=self.generator)

    def score(self, tokens):
        topic = tokens % TOPICS
        hits = topic[:, PROMPT:] == (topic[:, PROMPT - 1:-1] + 1) % TOPICS
        return hits.float()


@torch.no_grad()
def write(policy, prompts):
    tokens = prompts
    for _ in range(NEW):
        if FIXED:
            probs = F.softmax(policy.head(policy.trunk(tokens)[:, -1]), dim=-1)
        else:
            probs = F.softmax(policy(tokens), dim=-1)[:, -1]
        tokens = torch.cat([tokens, torch.multinomial(probs, 1)], dim=1)
    return tokens


def reinforce(policy, optimizer, tokens, rewards):
    to_go = rewards.flip(1).cumsum(1).flip(1)
    advantage = to_go - to_go.mean(0, keepdim=True)
    advantage = advantage / (advantage.std() + 1e-6)
    logits = policy.head(policy.trunk(tokens[:, :-1])[:, PROMPT - 1:])
    logp = F.log_softmax(logits, dim=-1)
    chosen = logp.gather(-1, tokens[:, PROMPT:].unsqueeze(-1)).squeeze(-1)
    loss = -(advantage * chosen).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(5)
    task = TopicWalk(torch.Generator().manual_seed(6))
    policy = Writer()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    steps = updates = 0
    begin = time.perf_counter()
    for iteration in range(ITERATIONS):
        tokens = write(policy, task.prompts(BATCH))
        rewards = task.score(tokens)
        steps += BATCH * NEW
        loss = reinforce(policy, optimizer, tokens, rewards)
        updates += 1
        print(f"iteration {iteration}: hit rate {rewards.mean().item():.3f} loss {loss:.4f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
