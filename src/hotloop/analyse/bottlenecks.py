"""The bottleneck analysis: a score, levels and a category for every operation, and where the time of those that deserve it is.

What lives here: a listing in, a frozen `Analysis` out; no I/O, no formatting.
    score     0.4·time% + 0.3·min(avg ms, 100) + 0.15·min(peak MB / 100, 10) + 0.15·min(GPU peak MB / 100, 10)
    time%     ours: union / wall, never above 100. A foreign report knows no wall time: of the sum of all its operations,
              in which nested operations count more than once.
    category  ours: own wall time, so that nothing counts twice. A foreign report has inclusive totals only.
What to change is for the findings to say, which a report of ours brings along: a name tells no cause.
Invariant: what `min_calls` leaves out of the ranking stays in `rare`, in the categories and in every total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from ..model.ledger import INFERRED, PROFILER, UNATTRIBUTED, WAITING
from ..model.listing import GARBAGE, STARTING, Entry, Listing, Own
from .categories import categorise

NOT_AT_WORK = "not at work"  # waiting, unattributed or profiler, where the source does not tell them apart
CRITICAL, SLOW, MEMORY, GPU_MEMORY = "CRITICAL", "SLOW", "MEMORY", "GPU MEMORY"
CRITICAL_PERCENT, SLOW_MS, LARGE_MB = 30.0, 100.0, 100.0
CONTAINER = 0.25  # an operation that holds less than this part of its time itself
LEAST_GAIN_PERCENT = 2.0  # what `hotloop ab` calls no difference, by default


@dataclass(frozen=True, slots=True)
class Bottleneck:
    name: str
    category: str
    score: float
    time_percent: float
    avg_time_ms: float
    call_count: int
    total_s: float
    own: Own | None
    own_percent: float | None  # of the wall time, running or, where it is known, waiting
    memory_peak_mb: float | None
    gpu_memory_peak_mb: float | None
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Category:
    name: str
    time_s: float
    percent: float
    operations: int
    waiting_percent: float = 0.0  # of the same whole; not part of `percent`


@dataclass(frozen=True, slots=True)
class Advice:
    operation: Bottleneck
    gain_percent: float  # at most, of what 100 % is
    text: str  # where its time is, if not in its own running code


@dataclass(frozen=True, slots=True)
class Analysis:
    listing: Listing
    min_calls: int
    base_s: float  # what 100 % is: the wall time, or the sum of a foreign report
    bottlenecks: tuple[Bottleneck, ...]  # called often enough; highest score first
    rare: tuple[Bottleneck, ...]  # the others; highest score first
    categories: tuple[Category, ...]  # most time first
    beside: tuple[Category, ...]  # waiting, unattributed, profiler, as far as the source tells them apart
    advice: tuple[Advice, ...]  # largest possible gain first

    @property
    def ours(self) -> bool:
        return self.listing.wall_s is not None


def score_of(time_percent: float, avg_ms: float, peak_mb: float = 0.0, gpu_mb: float = 0.0) -> float:
    """The weighted score.

    >>> score_of(25.0, 12.5), score_of(100.0, 250.0, 5000.0, 200.0)
    (13.75, 71.8)
    """
    time, call, memory, gpu = score_parts(time_percent, avg_ms, peak_mb, gpu_mb)
    return time + call + memory + gpu


def score_parts(
    time_percent: float, avg_ms: float, peak_mb: float = 0.0, gpu_mb: float = 0.0
) -> tuple[float, float, float, float]:
    """What the score is made of: time, time per call, memory, GPU memory.

    >>> score_parts(25.0, 12.5)
    (10.0, 3.75, 0.0, 0.0)
    """
    return 0.4 * time_percent, 0.3 * min(avg_ms, 100), 0.15 * min(peak_mb / 100, 10), 0.15 * min(gpu_mb / 100, 10)


def levels_of(time_percent: float, avg_ms: float, peak_mb: float = 0.0, gpu_mb: float = 0.0) -> tuple[str, ...]:
    """Every level that applies.

    >>> levels_of(31.0, 5.0, gpu_mb=101.0)
    ('CRITICAL', 'GPU MEMORY')
    """
    reached = {
        CRITICAL: time_percent > CRITICAL_PERCENT,
        SLOW: avg_ms > SLOW_MS,
        MEMORY: peak_mb > LARGE_MB,
        GPU_MEMORY: gpu_mb > LARGE_MB,
    }
    return tuple(level for level, yes in reached.items() if yes)


def find_bottlenecks(listing: Listing, min_calls: int = 10, patterns: Sequence[tuple[str, str]] = ()) -> Analysis:
    """Rank, sort into categories and advise; `patterns` are the user's (category, glob) pairs."""
    if listing.wall_s is None:
        base_s = fsum(e.total_s for e in listing.entries)
    else:
        # Several threads can hold more own time than the wall time, where the source cannot tell it apart: then that is 100 %.
        base_s = max(listing.wall_s, fsum(e.own.self_s for e in listing.entries if e.own))
    rows = sorted((_rate(e, base_s, patterns) for e in listing.entries), key=lambda b: (-b.score, b.name))
    ranked = tuple(b for b in rows if b.call_count >= min_calls)
    return Analysis(
        listing=listing,
        min_calls=min_calls,
        base_s=base_s,
        bottlenecks=ranked,
        rare=tuple(b for b in rows if b.call_count < min_calls),
        categories=_sum_categories(rows, base_s),
        beside=_sum_beside(listing, base_s),
        advice=tuple(sorted(_worth_it(_advise(b, base_s) for b in ranked if b.levels), key=lambda a: -a.gain_percent)),
    )


def _worth_it(advice: Iterable[Advice]) -> Iterable[Advice]:
    """Without what gains nothing: most of its time is that of other operations. Memory is advice of its own."""
    for a in advice:
        if a.gain_percent >= LEAST_GAIN_PERCENT or {MEMORY, GPU_MEMORY} & set(a.operation.levels):
            yield a


def _advise(b: Bottleneck, base_s: float) -> Advice:
    waiting_known = b.own is not None and b.own.waiting_s is not None
    gain = min(b.own_percent, b.time_percent) if waiting_known and b.own_percent is not None else b.time_percent
    return Advice(b, gain, _see_through(b.own, b.time_percent / 100 * base_s) if b.own else "")


def _see_through(own: Own, time_s: float) -> str:
    """Where an operation's time really is, when it is not in its own running code."""
    waiting_s = own.waiting_s or 0.0
    if own.self_s + waiting_s + own.outside_s < CONTAINER * time_s:
        if own.waiting_s is None:
            return "Little of its time is its own code: look at what it calls, or waits for, first."
        return "Little of its time is its own: look at the operations it calls first."
    if own.outside_s > own.self_s + waiting_s:
        return "Much of its time lies in none of its parts: put spans around the rest of its body to see what it is."
    if waiting_s > own.self_s:
        return "It mostly waits: speed up what it waits for (a worker, a server, a lock, a sleep), or do other work meanwhile."
    return ""


def _rate(e: Entry, base_s: float, patterns: Sequence[tuple[str, str]]) -> Bottleneck:
    time_percent = _percent(e.total_s, base_s) if e.share is None else min(1.0, e.share) * 100
    measures = time_percent, e.mean_s * 1000, e.memory_peak_mb or 0.0, e.gpu_memory_peak_mb or 0.0
    return Bottleneck(
        name=e.name,
        category=categorise(e.name, patterns),
        score=score_of(*measures),
        time_percent=time_percent,
        avg_time_ms=e.mean_s * 1000,
        call_count=e.calls,
        total_s=e.total_s,
        own=e.own,
        own_percent=_percent(e.own.self_s + (e.own.waiting_s or 0.0), base_s) if e.own else None,
        memory_peak_mb=e.memory_peak_mb,
        gpu_memory_peak_mb=e.gpu_memory_peak_mb,
        levels=levels_of(*measures),
    )


def _sum_categories(rows: Sequence[Bottleneck], base_s: float) -> tuple[Category, ...]:
    members: dict[str, list[Bottleneck]] = {}
    for b in rows:
        members.setdefault(b.category, []).append(b)
    sums = []
    for name, group in members.items():
        time_s = fsum(b.own.self_s if b.own else b.total_s for b in group)
        waiting_s = fsum(b.own.waiting_s or 0.0 for b in group if b.own)
        sums.append(Category(name, time_s, _percent(time_s, base_s), len(group), _percent(waiting_s, base_s)))
    return tuple(sorted(sums, key=lambda c: (-c.percent - c.waiting_percent, c.name)))


def _sum_beside(listing: Listing, base_s: float) -> tuple[Category, ...]:
    if listing.wall_s is None:
        return ()
    if listing.books is None:
        rest = {NOT_AT_WORK: max(0.0, base_s - fsum(e.own.self_s for e in listing.entries if e.own))}
    else:
        b = listing.books
        rest = {WAITING: b.waiting_s, UNATTRIBUTED: b.unattributed_s, PROFILER: b.profiler_s}
        sometimes = ((INFERRED, b.inferred_s), (GARBAGE, b.garbage_s), (STARTING, b.startup_s))
        rest |= {name: time_s for name, time_s in sometimes if time_s}
    return tuple(Category(name, time_s, _percent(time_s, base_s), 0) for name, time_s in rest.items())


def _percent(part: float, whole: float) -> float:
    return min(100.0, part / whole * 100) if whole else 0.0
