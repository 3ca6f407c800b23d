"""Environments one by one: how long a step takes in each, and which makes the others wait.

What lives here: the recorder's table of environments as rows with names. Only what is stepped from outside counts here: an
environment inside a vector environment is a part of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ..model.session import SessionData

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
    found = []
    for index, shard in enumerate(session.shards):
        for number, (steps, ns, track, label) in enumerate(shard.envs):
            lane = (session.processes[index].name if index else "") or shard.tracks[track].name or f"process {shard.pid}"
            kind = label.partition(".")[0] or "environment"
            name = f"{kind} ({lane})" if len(shard.envs) == 1 else f"{kind} {number} ({lane})"
            found.append(Environment(name, index, track, steps, ns))
    return tuple(found)


def find_stragglers(environments: Sequence[Environment], main_track: int) -> tuple[Environment, ...]:
    """Those in workers that take far longer than the others, slowest first."""
    workers = [e for e in environments if (e.shard, e.track) != (0, main_track) and e.steps > 1]
    if len(workers) < 2:
        return ()
    typical = median(e.step_ns for e in workers)
    slow = [e for e in workers if typical and e.step_ns >= LEAST_RATIO * typical]
    return tuple(sorted(slow, key=lambda e: -e.step_ns)) if 2 * len(slow) <= len(workers) else ()
