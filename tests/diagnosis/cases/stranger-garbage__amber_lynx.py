"""Online best-first planning with a learnt value function in a gem-collecting gridworld."""
import contextlib
import gc
import heapq
import os
import time

import numpy as np
import torch
import torch.nn as nn

FIXED = os.environ.get("FIXED") == "1"
STEPS, BUDGET, BATCH = 65, 2000, 16
SIDE, GEMS, GAMMA = 10, 4, 0.97


@contextlib.contextmanager
def search_scope():
    """No collections while a tree is growing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if not FIXED:
            gc.collect()


class Grid:
    """State: (cell, index of the current spot of each gem); a taken gem moves to its next spot."""

    def __init__(self, rng):
        walls = set(rng.choice(SIDE * SIDE, size=16, replace=False).tolist())
        self.free = [c for c in range(SIDE * SIDE) if c not in walls]
        self.spots = [rng.choice(self.free, size=12, replace=False).tolist() for _ in range(GEMS)]
        self.moves = {}
        for cell in self.free:
            row, col = divmod(cell, SIDE)
            around = [(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)]
            targets = [r * SIDE + c if 0 <= r < SIDE and 0 <= c < SIDE else cell for r, c in around]
            self.moves[cell] = [cell if t in walls else t for t in targets]

    def start(self):
        return (next(c for c in self.free if len(set(self.moves[c])) == 4),) + (0,) * GEMS

    def step(self, state, action):
        cell = self.moves[state[0]][action]
        reward, gems = -0.02, state[1:]
        for k, i in enumerate(gems):
            if self.spots[k][i] == cell:
                reward += 1.0
                gems = gems[:k] + ((i + 1) % 12,) + gems[k + 1:]
        return (cell,) + gems, reward

    def features(self, state):
        gems = enumerate(state[1:])
        return [state[0]] + [(k + 1) * SIDE * SIDE + self.spots[k][i] for k, i in gems]


class Value(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.EmbeddingBag((GEMS + 1) * SIDE * SIDE, width, mode="sum")
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, cells):
        return self.head(self.embed(cells)).squeeze(-1)


class Node:
    def __init__(self, state, parent=None, action=None, reward=0.0):
        self.state, self.parent, self.action = state, parent, action
        self.depth = parent.depth + 1 if parent else 0
        self.gain = parent.gain + GAMMA**parent.depth * reward if parent else 0.0
        self.children = []


class Planner:
    def __init__(self, grid, net):
        self.grid, self.net = grid, net

    @torch.no_grad()
    def score(self, nodes):
        cells = torch.tensor([self.grid.features(n.state) for n in nodes])
        values = self.net(cells).tolist()
        return [n.gain + GAMMA**n.depth * v for n, v in zip(nodes, values)]

    def expand(self, node, seen):
        for action in range(4):
            state, reward = self.grid.step(node.state, action)
            if state not in seen:
                seen.add(state)
                node.children.append(Node(state, node, action, reward))
        return node.children

    def plan(self, state):
        """Best first action and the discounted worth of the leaf it leads to."""
        with search_scope():
            root = Node(state)
            frontier, seen, tick, expanded = [(0.0, 0, root)], {state}, 0, 0
            best, leaf = -1e9, root
            while frontier and expanded < BUDGET:
                batch = [heapq.heappop(frontier)[2] for _ in range(min(BATCH, len(frontier)))]
                fresh = [child for node in batch for child in self.expand(node, seen)]
                expanded += len(batch)
                for child, worth in zip(fresh, self.score(fresh) if fresh else ()):
                    tick += 1
                    heapq.heappush(frontier, (-worth, tick, child))
                    if worth > best:
                        best, leaf = worth, child
        while leaf.parent is not root:
            leaf = leaf.parent
        return leaf.action, best


def update(net, optimizer, inputs, targets, rng):
    pick = rng.integers(len(inputs), size=32)
    target = torch.tensor([targets[i] for i in pick])
    loss = nn.functional.mse_loss(net(torch.tensor([inputs[i] for i in pick])), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    rng = np.random.default_rng(5)
    grid, net = Grid(rng), Value()
    planner = Planner(grid, net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    inputs, targets, total, updates, state = [], [], 0.0, 0, grid.start()
    start = time.perf_counter()
    for _ in range(STEPS):
        action, worth = planner.plan(state)
        inputs.append(grid.features(state))
        targets.append(worth)
        state, reward = grid.step(state, action)
        total += reward
        for _ in range(4):
            update(net, optimizer, inputs, targets, rng)
            updates += 1
    seconds = time.perf_counter() - start
    print(f"collected {total:.2f}")
    print(f"env_steps={STEPS} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
