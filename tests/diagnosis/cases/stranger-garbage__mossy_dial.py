"""Self-play with tree search and a policy-value network on noughts and crosses."""
import gc
import os
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FIXED = os.environ.get("FIXED") == "1"

SEED, GAMES, SIMS = 3, 16, 20
ITERATIONS, UPDATES_PER_ITERATION, BATCH = 12, 20, 64
ROWS = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])

def lost(board):
    """True when the player who moved last has three in a row (boards are seen by the player to move)."""
    return (board[ROWS].sum(1) == -3).any()

class Node:
    __slots__ = ("parent", "board", "prior", "visits", "total", "children")

    def __init__(self, parent, board, prior):
        self.parent, self.board, self.prior = parent, board, prior
        self.visits, self.total, self.children = 0, 0.0, {}

    def score(self, weight):
        q = -self.total / self.visits if self.visits else 0.0
        return q + weight * self.prior / (1 + self.visits)

    def expand(self, priors):
        for move in np.flatnonzero(self.board == 0).tolist():
            board = -self.board
            board[move] = -1
            self.children[move] = Node(self, board, float(priors[move]))

    def descend(self):
        node = self
        while node.children:
            weight = 1.5 * (node.visits + 1) ** 0.5
            node = max(node.children.values(), key=lambda child: child.score(weight))
        return node

    def backup(self, value):
        node = self
        while node is not None:
            node.visits += 1
            node.total += value
            node, value = node.parent, -value

class PolicyValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(18, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.pi = nn.Linear(96, 9)
        self.v = nn.Linear(96, 1)

    def forward(self, boards):
        z = self.body(torch.cat([(boards == 1).float(), (boards == -1).float()], -1))
        return self.pi(z), torch.tanh(self.v(z)).squeeze(-1)

class SelfPlay:
    def __init__(self, net, seed):
        self.net, self.moves = net, 0
        self.rng = np.random.default_rng(seed)

    def simulate(self, roots):
        open_leaves = []
        for root in roots:
            leaf = root.descend()
            if lost(leaf.board) or (leaf.board != 0).all():
                leaf.backup(-1.0 if lost(leaf.board) else 0.0)
            else:
                open_leaves.append(leaf)
        if open_leaves:
            boards = torch.from_numpy(np.stack([leaf.board for leaf in open_leaves]))
            with torch.no_grad():
                logits, values = self.net(boards)
            priors = logits.masked_fill(boards != 0, -1e9).softmax(-1).numpy()
            for leaf, prior, value in zip(open_leaves, priors, values.tolist()):
                leaf.expand(prior)
                leaf.backup(value)

    def advance(self, roots, moves):
        """Go on from the children that were played and let the rest of each tree go."""
        following = []
        for root, move in zip(roots, moves):
            child = root.children[move]
            child.parent, root.children = None, {}
            following.append(child)
        return following

    def release(self, records):
        """The games are over; nothing is kept of their records and trees."""
        records.clear()
        if not FIXED:
            gc.collect()

    def play(self, n_games):
        roots = [Node(None, np.zeros(9, np.int8), 1.0) for _ in range(n_games)]
        records = [[] for _ in range(n_games)]
        alive, examples = list(range(n_games)), []
        while alive:
            for _ in range(SIMS):
                self.simulate(roots)
            chosen = []
            for game, root in zip(alive, roots):
                visits = np.array([root.children[m].visits if m in root.children else 0 for m in range(9)])
                pi = visits / visits.sum()
                records[game].append((root.board, pi.astype(np.float32)))
                self.moves += 1
                chosen.append(int(self.rng.choice(9, p=pi)))
            roots = self.advance(roots, chosen)
            going = []
            for game, root in zip(alive, roots):
                over = lost(root.board)
                if over or (root.board != 0).all():
                    z = 1.0 if over else 0.0  # for whoever moved last
                    for board, pi in reversed(records[game]):
                        examples.append((board, pi, z))
                        z = -z
                else:
                    going.append((game, root))
            alive, roots = [game for game, _ in going], [root for _, root in going]
        self.release(records)
        return examples

def main():
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    net = PolicyValue()
    optim = torch.optim.Adam(net.parameters(), lr=2e-3)
    arena = SelfPlay(net, SEED)
    replay, updates = deque(maxlen=5000), 0
    start = time.perf_counter()
    for iteration in range(ITERATIONS):
        replay.extend(arena.play(GAMES))
        for _ in range(UPDATES_PER_ITERATION):
            boards, pis, zs = zip(*rng.sample(replay, BATCH))
            logits, values = net(torch.from_numpy(np.stack(boards)))
            policy_loss = -(torch.from_numpy(np.stack(pis)) * logits.log_softmax(-1)).sum(-1).mean()
            loss = policy_loss + F.mse_loss(values, torch.tensor(zs))
            optim.zero_grad()
            loss.backward()
            optim.step()
            updates += 1
        print(f"iteration {iteration + 1}: {len(replay)} positions, loss {loss:.3f}")
    seconds = time.perf_counter() - start
    print(f"env_steps={arena.moves} updates={updates} seconds={seconds:.3f}")

if __name__ == "__main__":
    main()
