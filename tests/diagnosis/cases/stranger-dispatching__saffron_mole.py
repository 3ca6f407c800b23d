"""AlphaZero-like self-play on 5x5 four-in-a-row, many games in lockstep."""
import os
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
XP = np if FIXED else torch
SIDE, CELLS = 5, 25
GAMES, SIMULATIONS, ROUNDS, UPDATES_PER_ROUND = 16, 48, 60, 2
BITS, FULL = np.arange(CELLS, dtype=np.int64), (1 << CELLS) - 1


def winning_lines():
    masks = []
    for row, col in np.ndindex(SIDE, SIDE):
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
            if row + 3 * dr < SIDE and 0 <= col + 3 * dc < SIDE:
                masks.append(sum(1 << ((row + k * dr) * SIDE + col + k * dc) for k in range(4)))
    return [[m for m in masks if m >> cell & 1] for cell in range(CELLS)]


LINES = winning_lines()


def place(position, move):
    """Position: stones of the player to move and of the other one, as bit sets."""
    own, other = position
    own |= 1 << move
    won = any(own & line == line for line in LINES[move])
    return (other, own), 1.0 if won else 0.0 if own | other == FULL else None


def planes(positions):
    stones = np.array(positions, dtype=np.int64)
    return torch.from_numpy(((stones[:, :, None] >> BITS) & 1).astype(np.float32))


class Net(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        layers = [nn.Flatten(), nn.Linear(2 * CELLS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.policy, self.value = nn.Linear(width, CELLS), nn.Linear(width, 1)

    def forward(self, x):
        h = self.body(x)
        return self.policy(h), torch.tanh(self.value(h)).squeeze(-1)


class Node:
    def __init__(self, position, prior, floor):
        self.position, self.prior, self.floor = position, XP.asarray(prior), XP.asarray(floor)
        self.visits = XP.zeros(CELLS, dtype=XP.float32)
        self.worth = XP.zeros(CELLS, dtype=XP.float32)
        self.children = {}

    def select(self):
        mean = self.worth / (self.visits + 1e-6)
        bonus = 1.5 * self.prior * (self.visits.sum() + 1) ** 0.5 / (self.visits + 1)
        return int((mean + bonus + self.floor).argmax())

    def record(self, move, outcome):
        self.visits[move] += 1
        self.worth[move] += outcome


@torch.no_grad()
def make_nodes(net, positions):
    x = planes(positions)
    logits, values = net(x)
    floor = x.sum(1) * -1e9
    prior = F.softmax(logits + floor, dim=1)
    return [Node(*row) for row in zip(positions, prior, floor)], values.tolist()


def descend(root):
    node, path = root, []
    while node is not None:
        path.append((node, node.select()))
        last, move = path[-1]
        node = last.children.get(move)
    return path, *place(last.position, move)


def backup(path, outcome):
    for node, move in reversed(path):
        node.record(move, outcome)
        outcome = -outcome


def search(net, positions, rng):
    roots, _ = make_nodes(net, positions)
    for root in roots:
        noise = rng.dirichlet(np.full(CELLS, 0.3)).astype(np.float32)
        root.prior = 0.75 * root.prior + 0.25 * XP.asarray(noise)
    for _ in range(SIMULATIONS):
        leaves = [descend(root) for root in roots]
        nodes, values = make_nodes(net, [position for _, position, _ in leaves])
        for (path, _, outcome), node, value in zip(leaves, nodes, values):
            if outcome is None:
                parent, move = path[-1]
                parent.children[move] = node
            backup(path, -value if outcome is None else outcome)
    return [np.asarray(root.visits / root.visits.sum(), dtype=np.float64) for root in roots]


def update(net, optimizer, memory, rng):
    positions, probs, outcomes = zip(*(memory[i] for i in rng.integers(len(memory), size=128)))
    logits, values = net(planes(positions))
    probs, target = torch.from_numpy(np.stack(probs)).float(), torch.tensor(outcomes)
    loss = F.mse_loss(values, target) - (probs * F.log_softmax(logits, dim=1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    rng = np.random.default_rng(4)
    net, memory = Net(), deque(maxlen=4000)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    positions, records = [(0, 0)] * GAMES, [[] for _ in range(GAMES)]
    moves = updates = 0
    start = time.perf_counter()
    for _ in range(ROUNDS):
        for g, probs in enumerate(search(net, positions, rng)):
            move = int(rng.choice(CELLS, p=probs / probs.sum()))
            records[g].append((positions[g], probs))
            positions[g], outcome = place(positions[g], move)
            moves += 1
            if outcome is not None:
                for position, target in reversed(records[g]):
                    memory.append((position, target, outcome))
                    outcome = -outcome
                positions[g], records[g] = (0, 0), []
        for _ in range(UPDATES_PER_ROUND if memory else 0):
            update(net, optimizer, memory, rng)
            updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={moves} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
