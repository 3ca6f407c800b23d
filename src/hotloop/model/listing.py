"""The operations of a run as flat entries: what a bottleneck analysis needs, whoever recorded them.

Invariant: plain data; every number is finite and not negative, None means that the source does not know it. An entry's own
times are wall time of the main track, from the balance sheet: over all entries, with the books beside them, they add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import shard as m
from .ledger import Branch
from .sheet import PROFILER, SPAN, UNATTRIBUTED, WAITING, Sheet


@dataclass(frozen=True, slots=True)
class Own:
    """The wall time that belongs to one operation and to nothing it calls."""

    self_s: float = 0.0  # running
    waiting_s: float | None = 0.0
    outside_s: float = 0.0  # a container's, in none of its parts; unattributed


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation."""

    name: str
    calls: int
    total_s: float  # busy: summed over threads, with what it calls
    mean_s: float
    share: float | None = None  # of the wall time, by union: 0 to 1
    own: Own | None = None
    memory_peak_mb: float | None = None
    gpu_memory_peak_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Books:
    """The wall time of the main track that is not operations at work."""

    waiting_s: float
    unattributed_s: float
    profiler_s: float


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What the recorder itself cost; subtracted already."""

    ns_per_span: float
    error_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class Listing:
    source: str  # as the user named it
    entries: tuple[Entry, ...]
    wall_s: float | None = None  # None: not ours, only the operations' totals are known
    coverage: float | None = None
    books: Books | None = None
    losses: dict[str, int] | None = None
    own_cost: OwnCost | None = None
    lower_bounds: int = 0  # operations whose share is a lower bound
    problems: tuple[str, ...] = ()


def share_out_own_times(sheet: Sheet, tree: Sequence[Branch]) -> tuple[dict[tuple[str, int], Own], Books]:
    """The sheet's leaves by the operation (name and kind) they belong to, and those that belong to none."""
    sums: dict[tuple[str, int], list[int]] = {}
    beside = dict.fromkeys((WAITING, UNATTRIBUTED, PROFILER), 0)
    owners: list[tuple[str, int] | None] = []
    for row in sheet.rows:
        owner = owners[row.parent] if row.parent >= 0 else None
        if row.branch >= 0 and tree[row.branch].kind in (m.USER, m.OVERFLOW):
            owner = tree[row.branch].name, tree[row.branch].kind
        elif row.branch >= 0 and tree[row.branch].kind == m.HANDOFF:
            owner = None  # what a worker does between its spans is not the work of who handed it over
        owners.append(owner)
        if not row.leaf:
            continue
        kind = UNATTRIBUTED if owner is None and row.kind == SPAN else row.kind
        if kind in beside:
            beside[kind] += row.ns
        if owner is not None and kind != PROFILER:
            sums.setdefault(owner, [0, 0, 0])[(SPAN, WAITING, UNATTRIBUTED).index(kind)] += row.ns
    own = {key: Own(*(ns / 1e9 for ns in parts)) for key, parts in sums.items()}
    return own, Books(*(ns / 1e9 for ns in beside.values()))
