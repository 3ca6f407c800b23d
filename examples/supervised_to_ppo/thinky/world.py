"""A grid-world of gatherers, all environments at once as tensors on the student's device.

What lives here: maps, moves, observations. Agents fetch ore from extractors (which then recover for a while) and carry it to
the hub: one unit, one point. Invariant: two agents never share a cell; the lowest index wins a contested one. Nothing waits
for the device: when an episode ends depends on the clock alone, which the host keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FREE, WALL, ORE, EMPTY, HUB, AGENT = range(6)
CODES = 6
MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))  # stay, north, south, west, east
RADIUS = 4
WIDE = 2 * RADIUS + 1
CELLS = WIDE * WIDE
OBSERVATION = CELLS + 4  # the window, carrying, hub dy + 128, hub dx + 128, last action
RECOVERY = 16  # steps until an emptied extractor has ore again
POOL = 32  # maps per mission
NOWHERE = 0  # the corner of the padding, which no agent can see


@dataclass(frozen=True, slots=True)
class Mission:
    size: int
    extractors: int


MISSIONS = {
    "extractor_hub_30": Mission(30, 14),
    "extractor_hub_50": Mission(50, 18),
    "extractor_hub_70": Mission(70, 22),
}


@dataclass(frozen=True, slots=True)
class Map:
    cells: np.ndarray  # uint8 (padded, padded), without agents
    extractors: np.ndarray  # flat cell indices


def draw_map(mission: Mission, padded: int, extractors: int, rng: np.random.Generator) -> Map:
    """Walls, a 3×3 hub in the middle and extractors around it, all within reach of each other."""
    while True:
        cells = np.full((padded, padded), WALL, np.uint8)
        low, high = RADIUS + 1, RADIUS + mission.size - 1
        inside = cells[low:high, low:high]
        inside[:] = np.where(rng.random(inside.shape) < 0.06, WALL, FREE)
        middle = RADIUS + mission.size // 2
        cells[middle - 3 : middle + 4, middle - 3 : middle + 4] = FREE
        cells[middle - 1 : middle + 2, middle - 1 : middle + 2] = HUB
        y, x = np.indices(cells.shape)
        distance = np.maximum(abs(y - middle), abs(x - middle))
        near = np.flatnonzero((cells == FREE) & (distance >= 4) & (distance <= min(12, mission.size // 2 - 2)))
        places = rng.choice(near, mission.extractors, replace=False)
        cells.flat[places] = ORE
        if _all_reachable(cells):
            return Map(cells, np.concatenate([places, np.full(extractors - mission.extractors, NOWHERE)]))


def _all_reachable(cells: np.ndarray) -> bool:
    seen, free = cells == HUB, cells == FREE
    while True:
        wider = seen.copy()
        wider[1:] |= seen[:-1]
        wider[:-1] |= seen[1:]
        wider[:, 1:] |= seen[:, :-1]
        wider[:, :-1] |= seen[:, 1:]
        grown = seen | (wider & free)
        if (grown == seen).all():
            return bool((wider | seen)[cells != WALL].all())
        seen = grown


class World:
    """`envs` environments with `agents` agents each, episodes of `max_steps` steps."""

    def __init__(self, missions: list[str], envs: int, agents: int, max_steps: int, seed: int, device: torch.device) -> None:
        self.envs, self.agents, self.max_steps, self.device = envs, agents, max_steps, device
        self._rng = np.random.default_rng(seed)
        kinds = [MISSIONS[name] for name in missions]
        side = max(kind.size for kind in kinds) + 2 * RADIUS
        most = max(kind.extractors for kind in kinds)
        maps = [draw_map(kind, side, most, self._rng) for kind in kinds for _ in range(POOL)]
        self._missions = np.arange(envs) % len(kinds)
        self._pool_cells = torch.as_tensor(np.stack([m.cells.ravel() for m in maps]), device=device)
        self._pool_free = [np.flatnonzero(m.cells.ravel() == FREE) for m in maps]
        self._pool_extractors = torch.as_tensor(np.stack([m.extractors for m in maps]), device=device)
        self._pool_hub = torch.tensor([RADIUS + kind.size // 2 for kind in kinds for _ in range(POOL)], device=device)
        self._side = side
        self._moves = torch.tensor([dy * side + dx for dy, dx in MOVES], device=device)
        reach = torch.arange(-RADIUS, RADIUS + 1, device=device)
        self._window = (reach[:, None] * side + reach).flatten()
        self._index = torch.arange(agents, device=device).expand(envs, agents)
        self.cells = torch.zeros(envs, side * side, dtype=torch.uint8, device=device)
        self.extractors = torch.zeros(envs, most, dtype=torch.long, device=device)
        self.recovery = torch.zeros(envs, most, dtype=torch.long, device=device)
        self.hub = torch.zeros(envs, 1, dtype=torch.long, device=device)
        self.at, self.last = (torch.zeros(envs, agents, dtype=torch.long, device=device) for _ in range(2))
        self.carrying = torch.zeros(envs, agents, dtype=torch.bool, device=device)
        self.returns = torch.zeros(envs, agents, device=device)
        self._finished, self._finished_agents = torch.zeros((), device=device), 0
        self.age, self._whole = np.zeros(envs, int), np.zeros(envs, bool)
        self.reset(np.arange(envs))
        # Environments end one after the other, not all in the same rollout; the first, shorter episodes are not counted.
        self.age = np.arange(envs) * max_steps // envs
        self._whole = self.age == 0

    def restart(self, seed: int) -> None:
        """Begin again with maps and places that depend on the seed alone, so that evaluations can be compared."""
        self._rng = np.random.default_rng(seed)
        self._whole[:] = False
        self.reset(np.arange(self.envs))

    def reset(self, which: np.ndarray) -> None:
        """Give these environments a new map, and their agents new places."""
        counted = which[self._whole[which]]
        if len(counted):
            self._finished += self.returns[self._send(counted)].sum()
            self._finished_agents += len(counted) * self.agents
        maps = self._missions[which] * POOL + self._rng.integers(POOL, size=len(which))
        places = np.stack([self._rng.choice(self._pool_free[m], self.agents, replace=False) for m in maps])
        env, chosen, at = self._send(which), self._send(maps), self._send(places)
        self.cells[env] = self._pool_cells[chosen].scatter(1, at, AGENT)
        self.extractors[env] = self._pool_extractors[chosen]
        self.hub[env] = self._pool_hub[chosen, None]
        self.at[env] = at
        for state in (self.recovery, self.last, self.carrying, self.returns):
            state.index_fill_(0, env, 0)
        self.age[which], self._whole[which] = 0, True

    def _send(self, array: np.ndarray) -> Tensor:
        """To the device, without waiting for what it does now."""
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def step(self, actions: Tensor) -> tuple[Tensor, np.ndarray]:
        """Move every agent; answers the rewards and the environments whose time is up, which want `reset`."""
        target = self.at + self._moves[actions]
        what = self.cells.gather(1, target)
        claims = torch.full_like(self.cells, self.agents).scatter_reduce_(1, target, self._index.to(torch.uint8), "amin")
        first = claims.gather(1, target) == self._index
        moves = first & (what == FREE)
        mines = first & (what == ORE) & ~self.carrying
        delivers = (what == HUB) & self.carrying

        after = torch.where(moves, target, self.at)
        self.cells.scatter_(1, self.at, FREE).scatter_(1, after, AGENT)
        self.cells.scatter_(1, torch.where(mines, target, NOWHERE), EMPTY)
        emptied = (self.cells.gather(1, self.extractors) == EMPTY) & (self.recovery == 0)
        self.recovery = torch.where(emptied, RECOVERY, (self.recovery - 1).clamp_(min=0))
        self.cells.scatter_(1, self.extractors, torch.where(self.recovery == 0, ORE, EMPTY).to(torch.uint8))
        self.at, self.carrying = after, (self.carrying | mines) & ~delivers
        self.last = actions.clone()  # reset() writes into it, and the caller keeps its actions
        rewards = delivers.float()
        self.returns += rewards
        self.age += 1
        return rewards, np.flatnonzero(self.age >= self.max_steps)

    def observe(self) -> Tensor:
        """uint8 (envs, agents, OBSERVATION): what the student and the teacher see."""
        window = self.cells.gather(1, (self.at[..., None] + self._window).flatten(1)).view(self.envs, self.agents, CELLS)
        dy, dx = self.hub - self.at // self._side, self.hub - self.at % self._side
        rest = torch.stack([self.carrying.long(), dy + 128, dx + 128, self.last], -1)
        return torch.cat([window, rest.to(torch.uint8)], -1)

    def take_finished(self) -> tuple[Tensor, int]:
        """Sum (still on the device) and number of the agents' returns over the whole episodes ended since the last call."""
        finished = self._finished, self._finished_agents
        self._finished, self._finished_agents = torch.zeros_like(self._finished), 0
        return finished
