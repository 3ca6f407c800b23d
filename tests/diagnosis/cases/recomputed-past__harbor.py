"""A small decoder learns to write number sequences that rise: policy gradient on whole answers."""
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
WORDS, WIDTH, HEADS, LAYERS, LENGTH, ROWS, UPDATES = 32, 128, 4, 2, 40, 64, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.one, self.two = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, kept):
        rows, steps, _ = x.shape
        q, k, v = self.qkv(self.one(x)).view(rows, steps, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if kept is not None:
            k, v = torch.cat((kept[0], k), 2), torch.cat((kept[1], v), 2)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=kept is None)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, steps, -1))
        return x + self.mlp(self.two(x)), (k, v)


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH + 1, WIDTH)
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS)

    def forward(self, words, kept=None):
        past = 0 if kept is None else kept[0][0].shape[2]
        x = self.word(words) + self.place.weight[past : past + words.shape[1]]
        news = []
        for i, block in enumerate(self.blocks):
            x, new = block(x, None if kept is None else kept[i])
            news.append(new)
        return self.head(x), news


@torch.no_grad()
def write(writer, words):
    kept = None
    for _ in range(LENGTH):
        if FIXED:
            logits, kept = writer(words if kept is None else words[:, -1:], kept)
        else:
            logits, _ = writer(words)
        words = torch.cat((words, torch.multinomial(logits[:, -1].softmax(-1), 1)), 1)
    return words


def main():
    torch.set_num_threads(1)
    torch.manual_seed(6)
    writer = Writer()
    optimizer = torch.optim.Adam(writer.parameters(), lr=5e-4)
    start = time.perf_counter()
    for update in range(UPDATES):
        words = write(writer, torch.randint(0, WORDS, (ROWS, 1)))
        reward = (words[:, 1:] > words[:, :-1]).float()
        logits, _ = writer(words[:, :-1])
        logp = logits.log_softmax(-1).gather(-1, words[:, 1:, None]).squeeze(-1)
        to_come = reward.flip(1).cumsum(1).flip(1)
        loss = -(logp * (to_come - to_come.mean(0))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 4 == 3:
            print(f"update {update}: {reward.mean():.3f} of the numbers rise")
    print(f"env_steps={UPDATES * ROWS * LENGTH} updates={UPDATES} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
