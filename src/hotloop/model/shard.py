"""One process's recording as plain data: what `store.shard.decode` makes of a shard's bytes.

Invariant: nothing here refers to a file; all times are nanoseconds of the monotonic clock; for every track the self times
of its nodes add up to its lifetime.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

USER, ROOT, WAIT, PROFILER, HANDOFF, OVERFLOW, INFERRED, GARBAGE = range(8)
KIND_NAMES = ("user", "root", "wait", "profiler", "handoff", "overflow", "inferred", "garbage")
# What a sampled thread did: on a core or ready for one; blocked; wanting the interpreter while another thread had it.
UNKNOWN, RUNNING, BLOCKED, WANTS_GIL = range(4)
# What it was found at when it was looked at again a moment later: another instruction or in another state; the same as before.
SHORT, LASTING = 1, 2
PEAK_METHODS = {0: "not measured", 1: "kernel peak per span", 2: "end points only"}
GC_PAUSE = "(gc pause)"  # the label of a collection of garbage: written as a wait, read as a kind of its own, for it is work
HARMLESS_LOSSES = frozenset({"cut", "inherited", "deep"})  # worth counting, not worth a warning


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    kind: int
    union_ns: int  # closed spans only
    union_start_ns: int  # 0 unless a span of it is open
    site: str = ""  # file:line where it was first opened, or where its function begins
    held_across_yield: str = ""  # file:line of a `with` whose body yields
    phase: int = 0  # of a hook's label, see model/phase.py
    after: int = 0  # of an inferred label: the phase before it, where that is another
    owns: bool = False  # its own time is work, also where it has parts


@dataclass(frozen=True, slots=True)
class Path:
    parent: int
    label: int
    origin: tuple[int, int] | None = None  # (shard, path) in another process that handed work over


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What a node keeps beside its times, in the order of its words; `add_readings` makes of them what a label's nodes have."""

    cpu_ns: int = 0
    cpu_wall_ns: int = 0
    rise_max_bytes: int = 0
    rise_sum_bytes: int = 0
    rss_max_bytes: int = 0
    peak_readings: int = 0
    end_readings: int = 0
    gpu_peak_bytes: int = 0
    expired_ns: int = 0  # of a wait's time, what ended without what was waited for: by a time limit


READINGS = tuple(x.name for x in fields(Readings))
_LARGEST = frozenset({"rise_max_bytes", "rss_max_bytes", "gpu_peak_bytes"})  # all others add up


@dataclass(frozen=True, slots=True)
class Node(Readings):
    """A path on one track."""

    track: int
    path: int
    count: int
    self_ns: int
    total_ns: int  # durations of the closed spans, recursion counted once
    min_ns: int
    max_ns: int
    sumsq: float
    histogram: tuple[int, ...]


def add_readings(nodes: Sequence[Node]) -> dict[str, int]:
    return {name: (max if name in _LARGEST else sum)([0, *(getattr(node, name) for node in nodes)]) for name in READINGS}


@dataclass(frozen=True, slots=True)
class OpenSpan:
    """A span that was open when the recording ended, or is open now."""

    track: int  # -1: a task that was awaiting
    path: int
    start_ns: int


@dataclass(frozen=True, slots=True)
class Track:
    id: int
    name: str
    tid: int
    alive: bool
    threads: int  # how many threads used it, one after the other
    lifetime_ns: int
    end_ns: int
    entered: int
    depth: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration, or several neighbours merged."""

    first: int
    merged: int
    start_ns: int
    end_ns: int
    self_ns: dict[int, int]  # by path
    calls: dict[int, int]  # by path
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    time_ns: int
    path: int
    rss_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a function, and of that the expression that was at work, where it is known."""

    file: str = ""
    function: str = ""
    line: int = 0
    first_line: int = 0  # of the function; 0: not known
    columns: tuple[int, int] = field(default=(0, 0), compare=False)  # of the expression, in bytes; on one line, or (0, 0)


class Env(NamedTuple):
    """One environment: its steps, the time in them, and where they ran last."""

    steps: int
    ns: int
    track: int
    label: str  # Class.step


class Sample(NamedTuple):
    """How often one thread was seen with one stack in one span."""

    stack: int
    path: int
    track: int  # -1: a thread without spans
    times: int
    early: bool  # before the training loop began
    state: int = UNKNOWN
    holds_gil: bool = False  # the thread had the interpreter
    call: int = UNKNOWN  # SHORT or LASTING


@dataclass(frozen=True, slots=True)
class Samples:
    """What the stack sampler saw: counts of (stack, path, track, early, state, holds_gil, call)."""

    interval_ns: int = 0
    ticks: int = 0
    lost: int = 0
    places: tuple[Place, ...] = ()
    stacks: tuple[tuple[int, int], ...] = ()  # (parent stack or -1, place), parents first
    counts: tuple[Sample, ...] = ()


@dataclass(frozen=True, slots=True)
class Shard:
    id: int
    pid: int
    parent_pid: int
    parent_shard: int
    name: str
    epoch: int
    native: bool
    clock: int
    start_ns: int
    start_unix_ns: int
    end_ns: int
    ended: bool  # closed by the recorder, not by the death of the process
    process_start: int
    paused_ns: int
    cost_inside_ps: int
    cost_outside_ps: int
    cost_error_ps: int
    peak_method: int
    disk_errno: int
    first_work_ns: int
    last_work_ns: int
    iterations_closed: int
    ring_events: int
    logged_events: int
    labels: tuple[Label, ...]
    paths: tuple[Path, ...]
    nodes: tuple[Node, ...]
    tracks: tuple[Track, ...]
    open_spans: tuple[OpenSpan, ...]
    lifted: int  # spans of suspended generators and awaiting tasks
    iterations: tuple[Iteration, ...]
    counters: dict[str, int]
    losses: dict[str, int]
    snapshots: tuple[Snapshot, ...]
    samples: Samples = field(default=Samples())
    envs: tuple[Env, ...] = ()
    problems: tuple[str, ...] = field(default=())  # what could not be read

    @property
    def attempted(self) -> int:
        """Spans entered or dropped: equal to recorded + dropped + open, always."""
        return (
            sum(track.entered for track in self.tracks)
            + self.losses.get("dropped_no_track", 0)
            + self.losses.get("dropped_reentrant", 0)
        )

    @property
    def recorded(self) -> int:
        return sum(node.count for node in self.nodes)

    @property
    def dropped(self) -> int:
        return sum(count for name, count in self.losses.items() if name.startswith("dropped"))

    @property
    def open_count(self) -> int:
        return self.lifted + sum(track.depth for track in self.tracks)

    def label_of(self, path: int) -> Label:
        return self.labels[self.paths[path].label]
