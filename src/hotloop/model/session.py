"""A session as plain data: the processes it is made of and their timeline.

Invariant: immutable; nothing here opens a file. The event columns are NumPy arrays, made by `store.reader`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .device import DeviceProcess, Operators
from .machine import Machine
from .probe import Probes
from .shard import Shard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LOOP = re.compile(r"\s*(async\s+)?(for|while)\b")


@dataclass(frozen=True, slots=True)
class Source:
    """What a run kept of one file of the script."""

    blocks: tuple[tuple[int, int], ...] = ()  # first and last line of every block of statements
    text: Mapping[int, str] = field(default_factory=dict)  # by line
    functions: tuple[tuple[str, int, int], ...] = ()  # qualified name, first and last line

    def loops_around(self, line: int, first_line: int) -> list[tuple[str, int, int]]:
        """The loops a line is in, within the function that begins at `first_line`, innermost first: header, first and last
        line of the body."""
        found = []
        for first, last in sorted(self.blocks, key=lambda b: b[1] - b[0]):
            if first <= line <= last and first > first_line:
                headers = (self.text.get(n, "") for n in range(first - 1, max(0, first - 4), -1))
                header = next((text for text in headers if text.strip()), "")
                if _LOOP.match(header):
                    found.append((header.strip(), first, last))
        return found


ENDED, RUNNING, DIED = "ended", "running", "died"
SEGMENT = 1  # event flag: one running stretch of a generator


@dataclass(frozen=True, slots=True)
class Process:
    shard: int  # index into SessionData.shards
    pid: int
    name: str
    state: str  # ended, running, died


@dataclass(frozen=True, slots=True)
class Events:
    """The timeline that was kept, as columns, in order of their start."""

    shard: NDArray[np.uint32]
    track: NDArray[np.uint32]
    path: NDArray[np.uint32]  # of the shard
    start_ns: NDArray[np.int64]
    dur_ns: NDArray[np.int64]
    iteration: NDArray[np.uint32]
    flags: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass(frozen=True, slots=True)
class SessionData:
    path: Path
    meta: dict[str, Any]
    shards: tuple[Shard, ...]  # the learner first, see model/job.py
    processes: tuple[Process, ...]
    events: Events
    problems: tuple[str, ...]
    system: tuple[dict[str, float], ...] = ()  # the sidecar's samples, in order
    sources: Mapping[str, Source] = field(default_factory=dict)  # by file, as far as the run kept them
    hooks: tuple[dict[str, str], ...] = ()  # what became of each integration: pid, integration, state, detail
    devices: tuple[DeviceProcess, ...] = ()  # of each process that used one
    operators: Operators | None = None  # of the deep window, if there was one
    machine: Machine = field(default_factory=Machine)  # what calls, copies and hand-overs cost where it ran
    probes: Probes = field(default_factory=Probes)  # what the script's own objects cost at other sizes

    @property
    def name(self) -> str:
        value = self.meta.get("name")
        return value if isinstance(value, str) else self.path.name
