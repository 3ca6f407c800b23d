"""Self-play with a small policy-value network and tree search on a 7x7 four-in-a-row board."""
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)
rng = np.random.default_rng(5)
SIZE, NEED = 7, 4
CELLS = SIZE * SIZE
LINES = [[(r + k * dr) * SIZE + c + k * dc for k in range(NEED)] for r in range(SIZE) for c in range(SIZE)
         for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)) if 0 <= r + 3 * dr < SIZE and 0 <= c + 3 * dc < SIZE]
THROUGH = [np.array([line for line in LINES if cell in line]) for cell in range(CELLS)]


class Board:
    def __init__(self, cells=None, last=-1):
        self.cells = np.zeros(CELLS, np.float32) if cells is None else cells
        self.last = last

    def play(self, cell):
        cells = -self.cells
        cells[cell] = -1.0
        return Board(cells, cell)

    def result(self):
        """-1 when the side to move has lost, 0 for a full board, None while the game goes on."""
        if self.last >= 0 and (self.cells[THROUGH[self.last]].sum(1) == -NEED).any():
            return -1.0
        return 0.0 if self.cells.all() else None


class Edge:
    def __init__(self, move, prior):
        self.move, self.prior, self.visits, self.total, self.node = move, prior, 0, 0.0, None


class Node:
    def __init__(self, board):
        self.board, self.value, self.seen = board, board.result(), 0
        self.edges = None

    def expand(self, priors):
        moves = np.flatnonzero(self.board.cells == 0)
        p = priors[moves] / priors[moves].sum()
        if FIXED:
            self.moves, self.p, self.nodes = moves, p, [None] * len(moves)
            self.n, self.w, self.edges = np.zeros(len(moves)), np.zeros(len(moves)), True
        else:
            self.edges = [Edge(int(m), float(q)) for m, q in zip(moves, p)]

    def select(self, c=1.5):
        if FIXED:
            n = self.n
            i = int((self.w / (n + 1e-9) + c * math.sqrt(self.seen + 1) * self.p / (1 + n)).argmax())
            if self.nodes[i] is None:
                self.nodes[i] = Node(self.board.play(self.moves[i]))
            return i, self.nodes[i]
        best, choice = -math.inf, None
        for edge in self.edges:
            q = edge.total / edge.visits if edge.visits else 0.0
            score = q + c * edge.prior * math.sqrt(self.seen + 1) / (1 + edge.visits)
            if score > best:
                best, choice = score, edge
        if choice.node is None:
            choice.node = Node(self.board.play(choice.move))
        return choice, choice.node

    def add(self, pick, value):
        self.seen += 1
        if FIXED:
            self.n[pick] += 1
            self.w[pick] += value
        else:
            pick.visits += 1
            pick.total += value

    def counts(self):
        out = np.zeros(CELLS)
        out[self.moves if FIXED else [e.move for e in self.edges]] = self.n if FIXED else [e.visits for e in self.edges]
        return out / out.sum()


def evaluate(net, boards):
    with torch.no_grad():
        out = net(torch.from_numpy(np.stack([b.cells for b in boards])))
    return out[:, :CELLS].softmax(-1).numpy(), out[:, CELLS].tanh().tolist()


def search(net, roots, simulations):
    for node, p in zip(roots, evaluate(net, [r.board for r in roots])[0]):
        node.expand(p)
    for _ in range(simulations):
        paths, leaves = [], []
        for node in roots:
            path = []
            while node.edges and node.value is None:
                pick, child = node.select()
                path.append((node, pick))
                node = child
            paths.append(path)
            leaves.append(node)
        priors, values = evaluate(net, [leaf.board for leaf in leaves])
        for path, leaf, p, v in zip(paths, leaves, priors, values):
            if leaf.value is None:
                leaf.expand(p)
            else:
                v = leaf.value
            for node, pick in reversed(path):
                v = -v
                node.add(pick, v)


def main(games=16, moves=100, simulations=24):
    net = nn.Sequential(nn.Linear(CELLS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CELLS + 1))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    boards, data, steps, updates = [Board() for _ in range(games)], [], 0, 0
    start = time.perf_counter()
    for _ in range(moves):
        roots = [Node(b) for b in boards]
        search(net, roots, simulations)
        for i, root in enumerate(roots):
            pi = root.counts()
            data.append((root.board.cells, pi.astype(np.float32)))
            boards[i] = root.board.play(rng.choice(CELLS, p=pi))
            boards[i] = boards[i] if boards[i].result() is None else Board()
            steps += 1
        for _ in range(4):
            x, y = (torch.from_numpy(np.stack(z)) for z in zip(*(data[j] for j in rng.integers(len(data), size=64))))
            loss = F.cross_entropy(net(x)[:, :CELLS], y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            updates += 1
    print(f"env_steps={steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
