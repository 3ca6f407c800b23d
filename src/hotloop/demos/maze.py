"""Q-learning in a maze with NumPy: a robot learns the way to its parcel from everywhere. It takes some seconds.

The reward says how much nearer the parcel came, by a flood fill through the maze before and after every move. With `--fixed`
the distances are kept, since they never change, which is what HotLoop proposes; the training is the same, move for move.
"""

from __future__ import annotations

import argparse
from collections import deque

import numpy as np
from numpy.typing import NDArray

MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
Cell = tuple[int, int]


class Maze:
    """A grid of walls and floor; reaching the parcel ends the episode."""

    def __init__(self, size: int, seed: int, keep_distances: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.size = size
        self.walls = self.random.random((size, size)) < 0.25
        self.walls[0, :] = self.walls[:, 0] = False  # two streets that are always open
        reached = self.flood((0, 0)) < size**2
        self.floor = [(int(row), int(column)) for row, column in np.argwhere(reached)]
        self.parcel = self.floor[-1]
        self.kept = self.flood(self.parcel) if keep_distances else None

    def reset(self) -> Cell:
        self.robot = self.floor[int(self.random.integers(len(self.floor)))]
        self.left = 200
        return self.robot

    def step(self, action: int) -> tuple[Cell, float, bool]:
        before = self.distances()[self.robot]
        row, column = self.robot[0] + MOVES[action][0], self.robot[1] + MOVES[action][1]
        if 0 <= row < self.size and 0 <= column < self.size and not self.walls[row, column]:
            self.robot = (row, column)
        after = self.distances()[self.robot]
        self.left -= 1
        return self.robot, 0.05 * float(before - after) - 0.1, bool(after == 0) or self.left == 0

    def distances(self) -> NDArray[np.int64]:
        """From every cell to the parcel, in moves."""
        return self.flood(self.parcel) if self.kept is None else self.kept

    def flood(self, goal: Cell) -> NDArray[np.int64]:
        found = np.full((self.size, self.size), self.size**2)
        found[goal] = 0
        queue = deque([goal])
        while queue:
            row, column = queue.popleft()
            for down, right in MOVES:
                cell = (row + down, column + right)
                inside = 0 <= cell[0] < self.size and 0 <= cell[1] < self.size
                if inside and not self.walls[cell] and found[cell] == self.size**2:
                    found[cell] = found[row, column] + 1
                    queue.append(cell)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixed", action="store_true", help="one flood fill instead of two per step")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    env = Maze(10, options.seed, options.fixed)
    values = np.zeros((env.size, env.size, len(MOVES)))
    state, moves, ways = env.reset(), 0, []
    for _ in range(options.steps):
        action = int(random.integers(len(MOVES))) if random.random() < 0.1 else int(values[state].argmax())
        after, reward, done = env.step(action)
        target = reward + (0.0 if done else 0.98 * values[after].max())
        values[state][action] += 0.2 * (target - values[state][action])
        state, moves = after, moves + 1
        if done:
            ways.append(moves)
            state, moves = env.reset(), 0
    quarter = max(1, len(ways) // 4)
    first, last = np.mean(ways[:quarter]), np.mean(ways[-quarter:])
    print(f"{len(ways)} parcels fetched; moves for each: {first:.1f} at first, {last:.1f} in the end")


if __name__ == "__main__":
    main()
