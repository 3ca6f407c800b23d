"""Self-play on a small drop-four board: tree search guided by a policy/value network, eight games side by side."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)

ROWS, COLS, C_PUCT = 5, 6, 1.4
GAMES, SIMULATIONS, ROUNDS, TRAIN_EVERY, BATCH = 8, 48, 72, 2, 64
LINES = [[(r + k * dr) * COLS + c + k * dc for k in range(4)] for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1))
         for r in range(ROWS) for c in range(COLS) if r + 3 * dr < ROWS and 0 <= c + 3 * dc < COLS]
THROUGH = [[line for line in LINES if cell in line] for cell in range(ROWS * COLS)]


class Board:
    def __init__(self, cells=None, player=1):
        self.cells, self.player, self.winner = cells or [0] * (ROWS * COLS), player, 0

    def over(self):
        return self.winner != 0 or 0 not in self.cells

    def drop(self, col):
        spot = self.cells[col::COLS].index(0) * COLS + col
        after = Board(self.cells[:], -self.player)
        after.cells[spot] = self.player
        if any(all(after.cells[i] == self.player for i in line) for line in THROUGH[spot]):
            after.winner = self.player
        return after

    def planes(self):
        return np.array(self.cells, dtype=np.float32) * self.player


class Node:
    """A position in the tree; `earned` is seen by the player who moved into it."""
    __slots__ = ("prior", "children", "ended", "earned", "n", "w")

    def __init__(self, prior):
        self.prior, self.children = prior, {}
        self.ended = self.n = 0
        self.earned = self.w = 0.0

    def visits(self):
        if FIXED:
            return self.n
        return self.ended + sum(child.visits() for child in self.children.values())

    def total(self):
        if FIXED:
            return self.w
        return self.earned - sum(child.total() for child in self.children.values())

    def pick(self):
        scale = C_PUCT * math.sqrt(self.visits())
        best, best_score = None, -1e9
        for move, child in self.children.items():
            n = child.visits()
            score = (child.total() / n if n else 0.0) + scale * child.prior / (1 + n)
            if score > best_score:
                best, best_score = move, score
        return best


def descend(root, board):
    path = [root]
    while path[-1].children and not board.over():
        move = path[-1].pick()
        path.append(path[-1].children[move])
        board = board.drop(move)
    return path, board


def back_up(path, value):
    path[-1].ended += 1
    path[-1].earned += value
    for node in reversed(path):
        node.n, node.w, value = node.n + 1, node.w + value, -value


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(ROWS * COLS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.policy, self.value = nn.Linear(128, COLS), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.policy(h), torch.tanh(self.value(h)).squeeze(-1)


def search(net, boards):
    roots = [Node(1.0) for _ in boards]
    for _ in range(SIMULATIONS):
        leaves = [descend(root, board) for root, board in zip(roots, boards)]
        with torch.no_grad():
            logits, values = net(torch.from_numpy(np.stack([b.planes() for _, b in leaves])))
        for (path, board), p, v in zip(leaves, logits.softmax(-1).tolist(), values.tolist()):
            if board.over():
                back_up(path, 1.0 if board.winner else 0.0)
            else:
                path[-1].children = {c: Node(p[c]) for c in range(COLS) if not board.cells[c - COLS]}
                back_up(path, -v)
    return roots


def main():
    torch.manual_seed(3)
    rng, net, boards, memory = np.random.default_rng(3), Net(), [Board() for _ in range(GAMES)], []
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    steps = updates = 0
    begin = time.perf_counter()
    for turn in range(1, ROUNDS + 1):
        for i, root in enumerate(search(net, boards)):
            counts = np.array([root.children[c].visits() if c in root.children else 0 for c in range(COLS)])
            target = counts / counts.sum()
            memory.append((boards[i].planes(), target, -root.total() / root.visits()))
            boards[i] = boards[i].drop(int(rng.choice(COLS, p=target)))
            steps += 1
            if boards[i].over():
                boards[i] = Board()
        for _ in range(4 if turn % TRAIN_EVERY == 0 else 0):
            batch = [memory[j] for j in rng.integers(len(memory), size=BATCH)]
            x, pi, z = (torch.from_numpy(np.array(part, dtype=np.float32)) for part in zip(*batch))
            logits, value = net(x)
            loss = -(pi * F.log_softmax(logits, -1)).sum(-1).mean() + F.mse_loss(value, z)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
        print(f"turn {turn}: {len(memory)} positions, {updates} updates")
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - begin:.3f}")


main()
