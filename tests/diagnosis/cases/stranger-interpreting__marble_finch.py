"""AlphaZero-style self-play on a 5x6 connect-four board, one game at a time."""
import math
import os
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FIXED = os.environ.get("FIXED") == "1"
ROWS, COLS = 5, 6
SIMULATIONS, MOVES, UPDATES_PER_GAME = 40, 270, 10
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


class ConnectFour:
    """Boards are seen by the player to move: own stones 1, the other's -1."""

    def start(self):
        return np.zeros((ROWS, COLS), dtype=np.int8)

    def key(self, board):
        return board.tobytes() if FIXED else str(board)

    def drop(self, board, col):
        """Play a column; gives the other player's view and the mover's outcome (None: goes on)."""
        row = ROWS - 1 - int(np.count_nonzero(board[:, col]))
        after = board.copy()
        after[row, col] = 1
        if self.connected(after.tolist(), row, col):
            return -after, 1.0
        return -after, 0.0 if after[0].all() else None

    def connected(self, cells, row, col):
        for dr, dc in DIRECTIONS:
            run = 1
            for sign in (1, -1):
                r, c = row + sign * dr, col + sign * dc
                while 0 <= r < ROWS and 0 <= c < COLS and cells[r][c] == 1:
                    run += 1
                    r, c = r + sign * dr, c + sign * dc
            if run >= 4:
                return True
        return False


class Net(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(ROWS * COLS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.policy, self.value = nn.Linear(width, COLS), nn.Linear(width, 1)

    def forward(self, boards):
        h = self.body(boards)
        return self.policy(h), torch.tanh(self.value(h)).squeeze(-1)


class Search:
    def __init__(self, game, net):
        self.game, self.net = game, net
        self.columns, self.prior, self.visits, self.worth = {}, {}, {}, {}

    @torch.no_grad()
    def expand(self, key, board):
        logits, value = self.net(torch.from_numpy(board).float().view(1, -1))
        columns = np.flatnonzero(board[0] == 0).tolist()
        probs = F.softmax(logits[0, columns], dim=0).tolist()
        self.columns[key], self.prior[key] = columns, probs
        self.visits[key], self.worth[key] = [0] * len(columns), [0.0] * len(columns)
        return value.item()

    def choose(self, key):
        visits, worth, prior = self.visits[key], self.worth[key], self.prior[key]
        scale = 1.5 * math.sqrt(sum(visits) + 1)
        best, pick = -1e9, 0
        for i, n in enumerate(visits):
            score = (worth[i] / n if n else 0.0) + scale * prior[i] / (1 + n)
            if score > best:
                best, pick = score, i
        return pick

    def simulate(self, board):
        key = self.game.key(board)
        if key not in self.prior:
            return -self.expand(key, board)
        pick = self.choose(key)
        after, outcome = self.game.drop(board, self.columns[key][pick])
        if outcome is None:
            outcome = self.simulate(after)
        self.visits[key][pick] += 1
        self.worth[key][pick] += outcome
        return -outcome

    def policy(self, board):
        for _ in range(SIMULATIONS):
            self.simulate(board)
        key = self.game.key(board)
        probs = np.zeros(COLS)
        probs[self.columns[key]] = self.visits[key]
        return probs / probs.sum()


def play(game, net, rng):
    search = Search(game, net)
    board, record, outcome = game.start(), [], None
    while outcome is None:
        probs = search.policy(board)
        record.append((board, probs))
        board, outcome = game.drop(board, int(rng.choice(COLS, p=probs)))
    last = len(record) - 1
    return [(b, p, outcome * (-1.0) ** (last - i)) for i, (b, p) in enumerate(record)]


def update(net, optimizer, memory, rng):
    picks = [memory[i] for i in rng.integers(len(memory), size=64)]
    boards = torch.from_numpy(np.stack([p[0] for p in picks])).float().flatten(1)
    probs = torch.from_numpy(np.stack([p[1] for p in picks])).float()
    target = torch.tensor([p[2] for p in picks])
    logits, value = net(boards)
    loss = F.mse_loss(value, target) - (probs * F.log_softmax(logits, dim=1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    game, net, memory = ConnectFour(), Net(), deque(maxlen=3000)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    moves = updates = 0
    start = time.perf_counter()
    while moves < MOVES:
        record = play(game, net, rng)
        memory.extend(record)
        moves += len(record)
        for _ in range(UPDATES_PER_GAME):
            update(net, optimizer, memory, rng)
            updates += 1
    seconds = time.perf_counter() - start
    print(f"env_steps={moves} updates={updates} seconds={seconds:.3f}")


if __name__ == "__main__":
    main()
