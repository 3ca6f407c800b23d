"""The operations of a run as flat entries: what a bottleneck analysis needs, whoever recorded them.

Invariant: plain data; every number is finite and not negative, None means that the source does not know it. An entry's own
times are wall time of the main track, from the balance sheet: over all entries, with the books beside them, they add up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import shard as m
from .ledger import INFERRED, PROFILER, UNATTRIBUTED, WAITING, Branch
from .phase import STARTUP
from .sheet import SPAN, Sheet

GARBAGE, STARTING = "garbage collection", "start-up"
_COLUMN = {SPAN: 0, WAITING: 1, UNATTRIBUTED: 2, INFERRED: 2}


@dataclass(frozen=True, slots=True)
class Own:
    """The wall time that belongs to one operation and to nothing it calls."""

    self_s: float = 0.0  # running
    waiting_s: float | None = 0.0
    outside_s: float = 0.0  # a container's, in none of its parts; unattributed or inferred


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
    inferred_s: float = 0.0
    garbage_s: float = 0.0  # collections in no operation
    startup_s: float = 0.0


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
    findings: tuple[str, ...] = ()  # a sentence each, largest gain first; only our reports have any
    problems: tuple[str, ...] = ()


def share_out_own_times(sheet: Sheet, tree: Sequence[Branch]) -> tuple[dict[tuple[str, int], Own], Books]:
    """The sheet's leaves by the operation (name and kind) they belong to, and those that are no operation at work."""
    sums: dict[tuple[str, int], list[int]] = {}
    beside = dict.fromkeys((WAITING, UNATTRIBUTED, PROFILER, INFERRED, GARBAGE, STARTING), 0)
    owners: list[tuple[str, int] | None] = []
    for row in sheet.rows:
        branch = tree[row.branch] if row.branch >= 0 else None
        owner = owners[row.parent] if row.parent >= 0 else None
        if branch is not None and branch.kind in (m.USER, m.OVERFLOW):
            owner = branch.name, branch.kind
        elif branch is not None and branch.kind == m.HANDOFF:
            owner = None  # what a worker does between its spans is not the work of who handed it over
        owners.append(owner)
        if not row.leaf:
            continue
        account = row.account
        if branch is not None and branch.phase == STARTUP:
            owner, account = None, STARTING
        elif account == SPAN and row.inferred:
            account = INFERRED
        elif account == SPAN and owner is None:
            account = GARBAGE if branch is not None and branch.kind == m.GARBAGE else UNATTRIBUTED
        if account in beside:
            beside[account] += row.ns
        if owner is not None and account != PROFILER:
            sums.setdefault(owner, [0, 0, 0])[_COLUMN[account]] += row.ns
    own = {key: Own(*(ns / 1e9 for ns in parts)) for key, parts in sums.items()}
    return own, Books(*(ns / 1e9 for ns in beside.values()))
