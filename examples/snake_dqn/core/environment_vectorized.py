"""N games of Snake as tensors: one `step` moves them all, on any device, without reading anything back to the host.

What lives here: the rules, the features and the automatic reset. A board is a row of a padded grid whose rim is wall. Every
cell holds a timer: how many moves until it is free again. The head's cell is set to the snake's length, and every move that
eats nothing counts all timers down, so the tail vanishes by itself. Invariant: a snake of length L occupies exactly the cells
with timers L, L-1 … 1.

Flood fill is the exception: it runs on the host, by Python loops, because it is the document's suspect 3.
"""

from __future__ import annotations

import torch
from core.flood_fill import SearchEveryTime, SearchOncePerComponent
from torch import Tensor

from hotloop import profile, profile_function

ACTIONS = ("straight", "right", "left")
TURN = (0, 1, -1)  # what each action adds to the heading; headings are up, right, down, left
START_LENGTH = 3
WALL = 1 << 30  # a timer that no episode outlives
FloodFill = str | int  # "off", "every", "cache", or every N steps


class VectorizedSnakeEnv:
    """`reset()` and `step(actions)` over all games; a game that ends starts anew within the step.

    Reward: +1 for food, -1 for dying (wall, own body, or hunger), else 0. Where `dones` is true, `next_states` is already the
    new game's first observation.
    """

    def __init__(
        self, num_envs: int = 256, board: int = 10, flood_fill: FloodFill = "off", device: str = "cpu", seed: int = 1
    ) -> None:
        self.num_envs, self.board, self.device = num_envs, board, torch.device(device)
        self.width = board + 2
        self.cells = board * board
        self.hunger_limit = 2 * self.cells
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.use_flood_fill = flood_fill != "off"
        self.flood_every = flood_fill if isinstance(flood_fill, int) else 1
        search = SearchOncePerComponent if flood_fill == "cache" else SearchEveryTime
        self.flood = search(self.width) if self.use_flood_fill else None
        self.num_features = 14 if self.use_flood_fill else 11
        self._offsets = torch.tensor([-self.width, 1, self.width, -1], device=self.device)
        self._turn = torch.tensor(TURN, device=self.device)
        self._quarter = torch.eye(4, device=self.device)
        self._start_boards, self._start_heads, self._start_headings = self._make_starts()

    # ---- the game ----

    def reset(self) -> Tensor:
        """New games everywhere; answers their observations."""
        with profile("reset"):
            n, device = self.num_envs, self.device
            everywhere = torch.ones(n, dtype=torch.bool, device=device)
            self.timers = torch.zeros(n, self.width**2, dtype=torch.int32, device=device)
            self.head, self.heading, self.food = (torch.zeros(n, dtype=torch.int64, device=device) for _ in range(3))
            self.length, self.hunger, self.age = (torch.zeros(n, dtype=torch.int32, device=device) for _ in range(3))
            self.moves = 0
            self._reach = torch.zeros(n, len(ACTIONS), device=device)
            self._restart(everywhere)
            self._place_food(everywhere)
        return self._observe()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """next_states, rewards, dones, info; info holds `length` (steps) and `score` (food) of episodes that ended, else 0."""
        with profile("move"):
            self.heading = (self.heading + self._turn[actions]) % 4
            self.head = self.head + self._offsets[self.heading]
            ate = self.head == self.food
            self.timers.sub_((~ate).int()[:, None]).clamp_(min=0)
            hit = self._timers_at(self.head[:, None])[:, 0] > 0
            self.length += ate
            self.timers.scatter_(1, self.head[:, None], self.length[:, None])
            self.hunger = torch.where(ate, 0, self.hunger + 1)
            self.age += 1
            dead = hit | (self.hunger >= self.hunger_limit)
            dones = dead | (self.length == self.cells)
            rewards = ate.float() - dead.float()
            info = {
                "length": torch.where(dones, self.age, 0),
                "score": torch.where(dones, self.length - START_LENGTH, 0),
            }
            self._restart(dones)
            self._place_food(ate | dones)
            self.moves += 1
        return self._observe(), rewards, dones, info

    def unfinished_steps(self) -> int:
        """Steps of the episodes still running (reads from the device)."""
        return int(self.age.sum())

    def _restart(self, where: Tensor) -> None:
        chosen = torch.randint(len(self._start_heads), (self.num_envs,), generator=self.random, device=self.device)
        self.timers = torch.where(where[:, None], self._start_boards[chosen], self.timers)
        self.head = torch.where(where, self._start_heads[chosen], self.head)
        self.heading = torch.where(where, self._start_headings[chosen], self.heading)
        self.length = torch.where(where, START_LENGTH, self.length)
        self.hunger = torch.where(where, 0, self.hunger)
        self.age = torch.where(where, 0, self.age)

    def _place_food(self, where: Tensor) -> None:
        draw = torch.rand(self.timers.shape, generator=self.random, device=self.device)
        cell = torch.where(self.timers > 0, -1.0, draw).argmax(1)  # the largest draw among the free cells: uniform
        self.food = torch.where(where, cell, self.food)

    def _make_starts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Every place and heading at which a snake of START_LENGTH fits, as boards ready to copy."""
        width, boards, heads, headings = self.width, [], [], []
        empty = torch.full((width, width), WALL, dtype=torch.int32)
        empty[1:-1, 1:-1] = 0
        empty = empty.flatten()
        for heading, offset in enumerate((-width, 1, width, -1)):
            for head in range(width * width):
                body = [head - i * offset for i in range(START_LENGTH)]
                if all(0 <= cell < len(empty) and empty[cell] == 0 for cell in body):
                    timers = empty.clone()
                    for i, cell in enumerate(body):
                        timers[cell] = START_LENGTH - i
                    boards.append(timers)
                    heads.append(head)
                    headings.append(heading)
        return (
            torch.stack(boards).to(self.device),
            torch.tensor(heads, device=self.device),
            torch.tensor(headings, device=self.device),
        )

    # ---- what the agent sees ----

    def _observe(self) -> Tensor:
        """float32 [envs, features]: danger per action (3), heading (4), food up/right/down/left (4), room per action (3)."""
        room = [self._room()] if self.use_flood_fill else []
        with profile("features"):
            danger = self._timers_at(self._ahead()) > 1  # a timer of 1 is the tail, gone by the time the head arrives
            up = self.head // self.width - self.food // self.width
            left = self.head % self.width - self.food % self.width
            food = torch.stack([up > 0, left < 0, up < 0, left > 0], 1)
            return torch.cat([danger.float(), self._quarter[self.heading], food.float(), *room], 1)

    @profile_function("flood_fill")
    def _room(self) -> Tensor:
        """Share of the board reachable through each action; between two searches (every N steps) the last answer stands."""
        if self.moves % self.flood_every == 0:
            blocked = (self.timers > 1).cpu().numpy()
            reach = self.flood.count(blocked, self._ahead().cpu().numpy())
            self._reach = torch.from_numpy(reach).to(self.device, torch.float32) / self.cells
        return self._reach

    def _ahead(self) -> Tensor:
        """The cell each action enters, [envs, actions]."""
        return self.head[:, None] + self._offsets[(self.heading[:, None] + self._turn) % 4]

    def _timers_at(self, cells: Tensor) -> Tensor:
        return self.timers.gather(1, cells)
