"""Self-play at a game of three heaps: the learner meets its own former selves."""
import copy
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
TABLES, ROUNDS, HEAPS, MOST, KEPT = 24, 500, 3, 5, 12
MOVES = HEAPS * MOST
DICE = torch.Generator().manual_seed(5)


class Player(nn.Module):
    def __init__(self, width=448):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(HEAPS * (MOST + 1), width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, MOVES)
        )
        for layer in self.layers[::2]:
            nn.init.orthogonal_(layer.weight, 1.4)
            nn.init.zeros_(layer.bias)

    def forward(self, heaps):
        seen = nn.functional.one_hot(heaps, MOST + 1).flatten(1).float()
        amounts = torch.arange(1, MOST + 1)
        possible = (heaps.unsqueeze(-1) >= amounts).flatten(1)
        return self.layers(seen).masked_fill(~possible, -1e9).log_softmax(-1)


def take(heaps, moves, playing):
    """Who takes the last piece wins; a table that is empty stands still."""
    after = heaps.clone()
    rows = torch.arange(TABLES)
    after[rows, moves // MOST] -= (moves % MOST + 1) * playing
    return after


class Past:
    """Former selves, by the weights they had."""

    def __init__(self):
        self.weights, self.seat = [], Player()

    def keep(self, player):
        self.weights = (self.weights + [copy.deepcopy(player.state_dict())])[-KEPT:]

    def meet(self, rng):
        rival = self.seat if FIXED else Player()
        rival.load_state_dict(self.weights[int(rng.integers(len(self.weights)))])
        return rival


def match(player, rival):
    heaps = torch.randint(1, MOST + 1, (TABLES, HEAPS), generator=DICE)
    playing, won = torch.ones(TABLES, dtype=torch.long), torch.zeros(TABLES)
    seen, chosen, weights = [], [], []
    turn = 0
    with torch.no_grad():
        while playing.any():
            side = player if turn % 2 == 0 else rival
            moves = torch.multinomial(side(heaps).exp(), 1, generator=DICE).squeeze(1)
            if side is player:
                seen.append(heaps), chosen.append(moves), weights.append(playing)
            heaps = take(heaps, moves, playing)
            over = (heaps.sum(1) == 0) & (playing == 1)
            won[over] = 1.0 if side is player else -1.0
            playing = playing * (~over).long()
            turn += 1
    return torch.cat(seen), torch.cat(chosen), torch.cat(weights).float(), won.repeat(len(seen))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    rng, player, past = np.random.default_rng(2), Player(), Past()
    optimizer = torch.optim.Adam(player.parameters(), lr=1e-3)
    past.keep(player)
    steps, start = 0, time.perf_counter()
    for game in range(ROUNDS):
        seen, chosen, weights, won = match(player, past.meet(rng))
        logp = player(seen).gather(1, chosen.unsqueeze(1)).squeeze(1)
        loss = -(logp * (won - won.mean()) * weights).sum() / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += len(seen)
        if game % 40 == 39:
            past.keep(player)
            print(f"game {game}: won {won.mean():.2f}")
    print(f"env_steps={steps} updates={ROUNDS} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
