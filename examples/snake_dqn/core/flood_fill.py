"""How much room is left behind each move: free cells reachable from the cell it enters, counted exactly.

What lives here: the document's suspect 3, breadth-first search by Python loops on the CPU, and its cached variant.
Boards are rows of a padded grid (the rim is blocked), so that no search can leave the board. Invariant: the answer depends on
the blocked cells and the start alone, which is what makes the cache exact.
"""

from __future__ import annotations

from collections import deque

import numpy as np

Blocked = np.ndarray  # bool [boards, cells of the padded grid]
Starts = np.ndarray  # int [boards, directions]


def component_of(row: bytes, width: int, start: int) -> set[int]:
    """The free cells connected with `start`; none where it is blocked itself."""
    if row[start]:
        return set()
    seen = {start}
    queue = deque([start])
    while queue:
        current = queue.popleft()
        for cell in (current - 1, current + 1, current - width, current + width):
            if not row[cell] and cell not in seen:
                seen.add(cell)
                queue.append(cell)
    return seen


class SearchEveryTime:
    """One search per board and direction, as in the document: 3 × 256 of them a step."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.asked = self.searched = 0

    def count(self, blocked: Blocked, starts: Starts) -> np.ndarray:
        """Reachable cells, int64 [boards, directions]."""
        rows = [row.tobytes() for row in blocked]
        out = np.zeros(starts.shape, np.int64)
        for direction in range(starts.shape[1]):
            for board, start in enumerate(starts[:, direction].tolist()):
                out[board, direction] = len(component_of(rows[board], self.width, start))
        self.asked += out.size
        self.searched += out.size
        return out


class SearchOncePerComponent:
    """Remembers, per board, the size of each component it has searched.

    Equal to `SearchEveryTime` on every input: the key holds all blocked cells, so a remembered board *is* the board asked
    about, and two cells of one component reach the same cells ("is connected with" is an equivalence). Forgetting a board
    only costs time.
    """

    def __init__(self, width: int, capacity: int = 20_000) -> None:
        self.width = width
        self.capacity = capacity
        self.known: dict[bytes, list[set[int]]] = {}
        self.asked = self.searched = 0

    def count(self, blocked: Blocked, starts: Starts) -> np.ndarray:
        """Reachable cells, int64 [boards, directions]."""
        out = np.zeros(starts.shape, np.int64)
        for board, (cells, row) in enumerate(zip(starts.tolist(), blocked, strict=True)):
            key = row.tobytes()
            components = self.known.get(key)
            if components is None:
                if len(self.known) >= self.capacity:
                    del self.known[next(iter(self.known))]  # the oldest
                components = self.known[key] = []
            out[board] = [self._size(components, key, start) for start in cells]
        self.asked += out.size
        return out

    def _size(self, components: list[set[int]], key: bytes, start: int) -> int:
        if key[start]:
            return 0
        for component in components:
            if start in component:
                return len(component)
        self.searched += 1
        components.append(component_of(key, self.width, start))
        return len(components[-1])
