"""The teacher on the CPU: compiled C behind ctypes, or the same rules in NumPy where there is no C compiler.

What lives here: the only door to the compiled code. Rules: fetch the nearest visible ore; carry it to the hub; with no ore in
sight walk straight on, but not further than LEASH from the hub. Invariant: both backends give the same action for every
observation.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .world import CELLS, FREE, HUB, MOVES, OBSERVATION, ORE, RADIUS, WIDE

LEASH, AHEAD, FAR = 12, 8, 1 << 20
_SOURCE = Path(__file__).with_name("teacher.c")
_LOADED, _UNLOADED = np.array((1, 3, 2, 4)), np.array((1, 4, 2, 3))  # whoever meets head-on evades to different sides
_NEIGHBOURS = np.array([CELLS // 2 + dy * WIDE + dx for dy, dx in MOVES])
_Y, _X = (axis.ravel() - RADIUS for axis in np.indices((WIDE, WIDE)))
_EDGE = (abs(_Y) == RADIUS) | (abs(_X) == RADIUS)
_MOVES = np.array(MOVES)

Act = Callable[[np.ndarray], np.ndarray]  # uint8 (agents, OBSERVATION) -> int32 (agents,)


def load_teacher(backend: str, cache: Path) -> tuple[str, Act]:
    """`auto`, `compiled` or `numpy`; answers the one taken and its function. The library is compiled once into `cache`."""
    if backend not in ("auto", "compiled", "numpy"):
        raise ValueError(f"teacher.backend is {backend!r}; it must be auto, compiled or numpy")
    if backend != "numpy":
        try:
            return "compiled", _open_library(_compile(cache))
        except (OSError, subprocess.CalledProcessError) as error:
            if backend == "compiled":
                raise ValueError(
                    f"the teacher cannot be compiled ({error}); install a C compiler or use teacher.backend=numpy"
                ) from None
            print(f"The teacher runs in NumPy, same actions but slower: it cannot be compiled ({error}).", file=sys.stderr)
    return "numpy", numpy_act


def _compile(cache: Path) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise OSError("no C compiler found")
    key = hashlib.sha256(_SOURCE.read_bytes() + compiler.encode() + os.uname().machine.encode()).hexdigest()[:16]
    library = cache / f"teacher-{key}.so"
    if not library.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")  # another run may compile the same thing now
        command = [compiler, "-O2", "-std=c11", "-fPIC", "-shared", str(_SOURCE), "-o", str(partial)]
        subprocess.run(command, check=True, capture_output=True)
        os.replace(partial, library)
    return library


def _open_library(path: Path) -> Act:
    function = ctypes.CDLL(str(path.resolve())).teacher_act
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p], None

    def act(observations: np.ndarray) -> np.ndarray:
        if observations.dtype != np.uint8 or observations.shape[1:] != (OBSERVATION,):
            raise ValueError(f"the teacher reads uint8 rows of {OBSERVATION}, got {observations.dtype} {observations.shape}")
        observations = np.ascontiguousarray(observations)
        actions = np.empty(len(observations), np.int32)
        function(observations.ctypes.data, len(observations), actions.ctypes.data)
        return actions

    return act


# ---- the same in NumPy ----


def numpy_act(observations: np.ndarray) -> np.ndarray:
    """As `teacher_act` of teacher.c, for all agents at once."""
    cells = observations[:, :CELLS]
    carrying, hub, last = (
        observations[:, CELLS],
        observations[:, CELLS + 1 : CELLS + 3].astype(np.int32) - 128,
        observations[:, CELLS + 3],
    )
    loaded = carrying != 0
    order = np.where(loaded[:, None], _LOADED, _UNLOADED)
    wanted = np.where(loaded, HUB, ORE)[:, None]
    actions = _descend(cells, np.where(cells == wanted, 0, FAR), order)
    explore = ~loaded & (abs(hub).sum(1) <= LEASH)
    target = np.where(explore[:, None], _MOVES[np.where(last == 0, 1, last)] * AHEAD, hub)
    distance = abs(_Y - target[:, :1]) + abs(_X - target[:, 1:])
    steered = _descend(cells, np.where(_EDGE & (cells == FREE), distance, FAR), order)
    return np.where(actions != 0, actions, steered).astype(np.int32)


def _descend(cells: np.ndarray, cost: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The neighbour from which the way to the cheapest source is shortest; 0 (stay) if there is none."""
    field = np.full((len(cells), WIDE + 2, WIDE + 2), FAR, np.int32)
    inner = field[:, 1:-1, 1:-1]
    inner[:] = cost.reshape(-1, WIDE, WIDE)
    free = cells.reshape(-1, WIDE, WIDE) == FREE
    while True:
        around = np.minimum(
            np.minimum(field[:, :-2, 1:-1], field[:, 2:, 1:-1]), np.minimum(field[:, 1:-1, :-2], field[:, 1:-1, 2:])
        )
        better = free & (around + 1 < inner)
        if not better.any():
            break
        inner[better] = around[better] + 1
    reached = np.take_along_axis(inner.reshape(len(cells), CELLS), _NEIGHBOURS[order], 1)
    first = reached.argmin(1)
    rows = np.arange(len(cells))
    return np.where(reached[rows, first] < FAR, order[rows, first], 0)
