"""Environments one by one: how long a step takes in each, and which makes the others wait.

What lives here: the recorder's table of environments as rows with names. Only what is stepped from outside counts here: an
environment inside a vector environment is a part of that one. They are numbered from 0, as vector environments number theirs:
within a process in the order of their first steps, across workers in the order the workers began.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..model.session import SessionData
from ..model.shard import WAIT, Shard

LEAST_RATIO = 1.8  # to the median, for a straggler


@dataclass(frozen=True, slots=True)
class Environment:
    name: str
    shard: int
    track: int
    steps: int
    ns: int

    @property
    def step_ns(self) -> float:
        return self.ns / self.steps


def list_environments(session: SessionData) -> tuple[Environment, ...]:
    """All of them, in the order of the processes."""
    found: list[Environment] = []
    ranks = _rank_workers(session)
    for index, shard in enumerate(session.shards):
        for number, (steps, ns, track, label) in enumerate(shard.envs):
            lane = (session.processes[index].name if index else "") or shard.tracks[track].name or f"process {shard.pid}"
            kind = (_busiest_class(shard) if len(shard.envs) == 1 else "") or label.partition(".")[0] or "environment"
            count = ranks[index] if index and len(shard.envs) == 1 else number
            found.append(Environment(f"environment {count}, {kind} ({lane})", index, track, steps, ns))
    return tuple(found)


def _rank_workers(session: SessionData) -> dict[int, int]:
    """By process: its place among the workers that step environments, by the number in its name, else as they began."""
    workers = [i for i, shard in enumerate(session.shards) if i and shard.envs]

    def key(index: int) -> tuple[str, int, int]:
        name = session.processes[index].name
        number = re.search(r"(\d+)\D*$", name)
        return (name[: number.start()] if number else name, int(number[1]) if number else 0, index)

    return {index: rank for rank, index in enumerate(sorted(workers, key=key))}


def _busiest_class(shard: Shard) -> str:
    """Of an environment's layers, the class that does most: wrappers are seldom what one knows it by."""
    own: Counter[str] = Counter()
    for node in shard.nodes:
        label = shard.label_of(node.path)
        if label.kind == WAIT:  # is that of what waits
            label = shard.label_of(shard.paths[node.path].parent)
        name, _, method = label.name.rpartition(".")
        if method == "step" and "/" not in name:
            own[name] += node.self_ns
    return own.most_common(1)[0][0] if own else ""


def find_stragglers(environments: Sequence[Environment], main_track: int) -> tuple[Environment, ...]:
    """Those in workers that take far longer than the others, slowest first."""
    workers = [e for e in environments if (e.shard, e.track) != (0, main_track) and e.steps > 1]
    if len(workers) < 2:
        return ()
    typical = median(e.step_ns for e in workers)
    slow = [e for e in workers if typical and e.step_ns >= LEAST_RATIO * typical]
    return tuple(sorted(slow, key=lambda e: -e.step_ns)) if 2 * len(slow) <= len(workers) else ()
