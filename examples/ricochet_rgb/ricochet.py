"""Ricochet Robots: a robot slides until something stops it; the one of the target's colour must stop on the target.

What lives here: the board, the puzzle, the rules, and many games side by side. Pictures are drawn in rendering.py.
Cells are numbered row by row, `cell = y * size + x`; an action is `robot * 4 + direction`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotloop import count, profile

NORTH, EAST, SOUTH, WEST = range(4)
STEPS = ((0, -1), (1, 0), (0, 1), (-1, 0))  # (dx, dy) of the four directions
MAX_ROBOTS = 4


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes a puzzle easy or hard."""

    size: int = 16
    robots: int = 4
    corners: int = 16  # L-shaped pieces of wall, beside the border and the block in the middle
    max_distance: int = 4  # the target can be reached in at most so many moves of its robot
    max_moves: int = 20  # then the puzzle counts as not solved


class Board:
    """Walls, and for every cell and direction the next cell, or -1 where a wall stands between."""

    def __init__(self, size: int, corners: int, rng: random.Random) -> None:
        self.size = size
        self.east = np.zeros((size, size), bool)  # a wall between (x, y) and (x + 1, y)
        self.south = np.zeros((size, size), bool)  # a wall between (x, y) and (x, y + 1)
        self.east[:, -1] = self.south[-1, :] = True
        middle = size // 2
        self.block = {y * size + x for y in (middle - 1, middle) for x in (middle - 1, middle)}
        for at in (middle - 1, middle):
            self.east[at, middle - 2] = self.east[at, middle] = True
            self.south[middle - 2, at] = self.south[middle, at] = True
        for _ in range(corners):
            x, y = rng.randrange(1, size - 1), rng.randrange(1, size - 1)
            self.east[y, x - rng.randrange(2)] = True
            self.south[y - rng.randrange(2), x] = True
        self.next_cell = self._next_cells()

    def _next_cells(self) -> list[list[int]]:
        cells = np.arange(self.size * self.size).reshape(self.size, self.size)
        to_east = np.where(self.east, -1, cells + 1)
        to_south = np.where(self.south, -1, cells + self.size)
        to_west, to_north = np.full_like(cells, -1), np.full_like(cells, -1)
        to_west[:, 1:] = np.where(self.east[:, :-1], -1, cells[:, :-1])
        to_north[1:, :] = np.where(self.south[:-1, :], -1, cells[:-1, :])
        return [table.ravel().tolist() for table in (to_north, to_east, to_south, to_west)]

    def slide(self, cell: int, direction: int, occupied: list[int]) -> int:
        """Where a robot that starts from `cell` comes to rest."""
        table = self.next_cell[direction]
        while (ahead := table[cell]) >= 0 and ahead not in occupied:
            cell = ahead
        return cell


class Game:
    """One puzzle after another, each on a board of its own."""

    def __init__(self, rules: Rules, rng: random.Random) -> None:
        self.rules, self.rng = rules, rng
        self.reset()

    def reset(self) -> None:
        """A new puzzle that its robot alone can solve within `max_distance` moves."""
        rules, rng = self.rules, self.rng
        while True:
            self.board = Board(rules.size, rules.corners, rng)
            free = [cell for cell in range(rules.size**2) if cell not in self.board.block]
            self.robots = rng.sample(free, rules.robots)
            self.goal_robot = rng.randrange(rules.robots)
            by_distance = self._reachable(self.goal_robot, rules.max_distance)
            if by_distance:
                self.target = rng.choice(rng.choice(by_distance))
                self.moves, self.episode_return = 0, 0.0
                return

    def _reachable(self, robot: int, most: int) -> list[list[int]]:
        """The resting places of a robot by number of moves, 1 to `most`, while the others stand still."""
        others = [cell for i, cell in enumerate(self.robots) if i != robot]
        seen, frontier, rings = {self.robots[robot]}, [self.robots[robot]], []
        for _ in range(most):
            ring = []
            for cell in frontier:
                for direction in range(4):
                    there = self.board.slide(cell, direction, others)
                    if there not in seen:
                        seen.add(there)
                        ring.append(there)
            if not ring:
                break
            rings.append(ring)
            frontier = ring
        return rings

    @property
    def solved(self) -> bool:
        return self.robots[self.goal_robot] == self.target

    def move(self, action: int) -> tuple[float, bool]:
        """Slide one robot; answers (reward, is the puzzle over?). The return lies between -1 and 1."""
        robot, direction = divmod(action, 4)
        self.robots[robot] = self.board.slide(self.robots[robot], direction, self.robots)
        self.moves += 1
        reward = float(self.solved) - 1.0 / self.rules.max_moves
        self.episode_return += reward
        return reward, self.solved or self.moves >= self.rules.max_moves


class Observer(Protocol):
    """Turns a game into an array of bytes, (channels, height, width)."""

    shape: tuple[int, int, int]

    def observe(self, game: Game, out: np.ndarray) -> None: ...


class SymbolicObserver:
    """Planes that are dark (0) or lit (255): walls in four directions, each robot, the target, the robot that must reach it."""

    def __init__(self, rules: Rules) -> None:
        self.shape = (4 + rules.robots + 2, rules.size, rules.size)

    def observe(self, game: Game, out: np.ndarray) -> None:
        with profile("env_symbolic_observation_generation"):
            planes = out.reshape(len(out), -1)
            planes[:] = 0
            planes[:4][np.less(game.board.next_cell, 0)] = 255
            for robot, cell in enumerate(game.robots):
                planes[4 + robot, cell] = 255
            planes[-2, game.target] = 255
            planes[-1, game.robots[game.goal_robot]] = 255


@dataclass(frozen=True, slots=True)
class Episode:
    total: float  # its return
    moves: int
    solved: bool


class Games:
    """Many games side by side; a game that is over starts anew by itself."""

    def __init__(self, rules: Rules, n_envs: int, seed: int, observer: Observer) -> None:
        self.games = [Game(rules, random.Random(f"{seed}-{i}")) for i in range(n_envs)]
        self.observer = observer
        self.n_actions = rules.robots * 4

    def observe(self) -> np.ndarray:
        out = np.empty((len(self.games), *self.observer.shape), np.uint8)
        for game, place in zip(self.games, out, strict=True):
            self.observer.observe(game, place)
        return out

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Episode]]:
        """Answers (observations, rewards, which games began anew, the episodes that ended)."""
        rewards, begun = np.zeros(len(self.games), np.float32), np.zeros(len(self.games), bool)
        with profile("env_step"):
            for i, (game, action) in enumerate(zip(self.games, actions.tolist(), strict=True)):
                rewards[i], begun[i] = game.move(action)
        over = [self.games[i] for i in np.flatnonzero(begun)]
        ended = [Episode(game.episode_return, game.moves, game.solved) for game in over]
        if over:
            with profile("env_reset"):
                for game in over:
                    game.reset()
            count("episodes", len(over))
            count("resets", len(over))
        return self.observe(), rewards, begun, ended
