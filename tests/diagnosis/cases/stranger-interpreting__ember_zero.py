"""AlphaZero-style training on capture Go, 8x8: the first to capture a stone wins."""
import math
import os
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
SIZE = 8
POINTS = SIZE * SIZE
AROUND = [[q for q, ok in ((p - SIZE, p >= SIZE), (p + SIZE, p < POINTS - SIZE),
                           (p - 1, p % SIZE > 0), (p + 1, p % SIZE < SIZE - 1)) if ok] for p in range(POINTS)]


class Position:
    __slots__ = ("board", "turn", "winner", "moves")

    def __init__(self, board=None, turn=1, moves=0):
        self.board = board or [0] * POINTS
        self.turn, self.moves, self.winner = turn, moves, None

    def breathes(self, point):
        """Whether the group that holds the point has a liberty."""
        colour, seen, todo, free = self.board[point], {point}, [point], 0
        while todo:
            for q in AROUND[todo.pop()]:
                if q in seen:
                    continue
                seen.add(q)
                if self.board[q] == 0:
                    free += 1
                elif self.board[q] == colour:
                    todo.append(q)
        return free > 0

    def allowed(self, point):
        if self.board[point]:
            return False
        if FIXED:
            for q in AROUND[point]:
                if self.board[q] == 0:
                    return True
        trial = self.play(point)
        return trial.winner == self.turn or trial.breathes(point)

    def legal(self):
        return [p for p in range(POINTS) if self.allowed(p)]

    def play(self, point):
        nxt = Position(self.board[:], -self.turn, self.moves + 1)
        nxt.board[point] = self.turn
        if any(nxt.board[q] == -self.turn and not nxt.breathes(q) for q in AROUND[point]):
            nxt.winner = self.turn
        elif nxt.moves >= 40:
            nxt.winner = 0
        return nxt

    def planes(self):
        b = np.array(self.board, np.float32).reshape(SIZE, SIZE) * self.turn
        return np.stack([b > 0, b < 0]).astype(np.float32)


class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(2, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.policy, self.value = nn.Linear(width * POINTS, POINTS), nn.Linear(width * POINTS, 1)

    def forward(self, x):
        x = F.relu(self.c2(F.relu(self.c1(x)))).flatten(1)
        return self.policy(x), torch.tanh(self.value(x)).squeeze(-1)


class Node:
    def __init__(self, pos):
        self.pos, self.kids, self.open = pos, {}, False

    def expand(self, net):
        self.actions = self.pos.legal()
        self.open = True
        if not self.actions:
            self.pos.winner = -self.pos.turn
            return -1.0
        with torch.no_grad():
            logits, value = net(torch.from_numpy(self.pos.planes()).unsqueeze(0))
        self.prior = torch.softmax(logits[0, self.actions], 0).numpy()
        self.visits, self.total = np.zeros(len(self.actions)), np.zeros(len(self.actions))
        return value.item()

    def best(self):
        q = self.total / np.maximum(self.visits, 1)
        return int((q + 1.5 * self.prior * math.sqrt(self.visits.sum() + 1) / (1 + self.visits)).argmax())


def simulate(node, net):
    if node.pos.winner is not None:
        return float(node.pos.winner * node.pos.turn)
    if not node.open:
        return node.expand(net)
    k = node.best()
    if k not in node.kids:
        node.kids[k] = Node(node.pos.play(node.actions[k]))
    value = -simulate(node.kids[k], net)
    node.visits[k] += 1
    node.total[k] += value
    return value


def self_play(net, memory, sims):
    root, trail = Node(Position()), []
    while root.pos.winner is None:
        for _ in range(sims):
            simulate(root, net)
        if root.pos.winner is not None or not root.visits.sum():
            break
        pi = np.zeros(POINTS, np.float32)
        pi[root.actions] = root.visits / root.visits.sum()
        trail.append((root.pos.planes(), pi, root.pos.turn))
        k = random.choices(range(len(root.actions)), root.visits)[0]
        root = root.kids[k]
    for planes, pi, turn in trail:
        memory.append((planes, pi, np.float32((root.pos.winner or 0) * turn)))
    return len(trail)


def train(net, opt, memory):
    x, pi, z = (torch.from_numpy(np.stack(part)) for part in zip(*random.sample(memory, min(64, len(memory)))))
    logits, value = net(x)
    loss = F.mse_loss(value, z) - (pi * F.log_softmax(logits, 1)).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


def main():
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    torch.set_num_threads(1)
    net, memory = Net(), deque(maxlen=5000)
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    env_steps = updates = 0
    start = time.perf_counter()
    while env_steps < 200:
        env_steps += self_play(net, memory, sims=48)
        for _ in range(12):
            train(net, opt, memory)
            updates += 1
    print(f"env_steps={env_steps} updates={updates} seconds={time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()
