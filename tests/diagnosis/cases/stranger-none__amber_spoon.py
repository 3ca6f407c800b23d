"""Collecting parcels in a good order: attention over the set of parcels, REINFORCE with a shared baseline."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

INSTANCES, ROLLOUTS, PARCELS, WIDTH, HEADS = 96, 8, 14, 64, 4
UPDATES, RATE = 75, 5e-4


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, n, WIDTH))
        return x + self.mlp(self.norm2(x))


class ParcelPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, WIDTH)
        self.layers = nn.Sequential(Layer(), Layer(), Layer())
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.context = nn.Linear(2 * WIDTH + 2, WIDTH)

    def encode(self, parcels):
        nodes = self.layers(self.embed(parcels))
        return nodes, self.key(nodes).transpose(1, 2)

    def logits(self, nodes, keys, last, place, taken):
        rows = torch.arange(len(nodes))[:, None]
        here = torch.cat([nodes[rows, last], nodes.mean(1, keepdim=True).expand(-1, last.shape[1], -1), place], -1)
        scores = torch.bmm(self.context(here), keys) / WIDTH ** 0.5
        return (10 * torch.tanh(scores)).masked_fill(taken, -1e9)


class Round:
    """A batch of pick-up rounds; parcels carry a position and a weight that makes carrying them dear."""

    def __init__(self, generator):
        self.parcels = torch.rand(INSTANCES, PARCELS, 3, generator=generator)
        self.place = torch.full((INSTANCES, ROLLOUTS, 2), 0.5)
        self.taken = torch.zeros(INSTANCES, ROLLOUTS, PARCELS, dtype=torch.bool)
        self.load = torch.zeros(INSTANCES, ROLLOUTS)
        self.rows = torch.arange(INSTANCES)[:, None]

    def step(self, choice):
        parcel = self.parcels[self.rows, choice]
        cost = (parcel[..., :2] - self.place).norm(dim=-1) * (1 + 0.2 * self.load)
        self.load = self.load + parcel[..., 2]
        self.place = parcel[..., :2]
        self.taken = self.taken.scatter(-1, choice.unsqueeze(-1), True)
        return -cost


def play(policy, generator):
    game = Round(generator)
    nodes, keys = policy.encode(game.parcels)
    last = torch.zeros(INSTANCES, ROLLOUTS, dtype=torch.long)
    total, logp_sum = torch.zeros(INSTANCES, ROLLOUTS), torch.zeros(INSTANCES, ROLLOUTS)
    for _ in range(PARCELS):
        logp = F.log_softmax(policy.logits(nodes, keys, last, game.place, game.taken), -1)
        flat = logp.detach().exp().view(-1, PARCELS)
        last = torch.multinomial(flat, 1, generator=generator).view(INSTANCES, ROLLOUTS)
        logp_sum = logp_sum + logp.gather(-1, last.unsqueeze(-1)).squeeze(-1)
        total = total + game.step(last)
    return total, logp_sum


def main():
    torch.manual_seed(31)
    generator = torch.Generator().manual_seed(32)
    policy = ParcelPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=RATE)
    steps = updates = 0
    begin = time.perf_counter()
    for update in range(UPDATES):
        total, logp = play(policy, generator)
        steps += INSTANCES * ROLLOUTS * PARCELS
        advantage = total - total.mean(1, keepdim=True)
        loss = -(advantage * logp).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        updates += 1
        if update % 15 == 0:
            print(f"update {update}: cost {-total.mean().item():.3f}")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
