"""What grows with the run: the cost of a label per env step, and memory.

What lives here: comparisons of the first quarter of the iterations with the last, robust against a few odd ones. Used by the
causes that are about growth. The test for a trend itself is the report's (analyse/trend.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from math import nan
from statistics import median
from typing import TYPE_CHECKING

from ...model import shard as m
from ..devices import BETWEEN
from ..trend import find_trends

if TYPE_CHECKING:
    from .evidence import Evidence

_LEAST_ROWS = 16
_LEAST_SHARE = 0.03  # of the loop, for a label that matters
_BINS = 8
LEAST_RISE = 1.3
MUCH_MB = 150  # of memory gained
_LEAST_BETWEEN = 2  # iterations on the way up


@dataclass(frozen=True, slots=True)
class Growing:
    label: str
    early_us: float  # per env step
    late_us: float
    excess: float  # of its time, what would be gone had it stayed as at the beginning
    soon: bool = False  # it rose through the first iterations only

    @property
    def factor(self) -> float:
        return self.late_us / max(self.early_us, 1e-3)


def growing_labels(e: Evidence) -> list[Growing]:
    """Labels whose own time per env step rises through the run, those that cost most by it first."""
    shard = e.diagnosis.learner
    rows = [row for row in shard.iterations if row.counts.get("env_steps", 0) > 0]
    if len(rows) < _LEAST_ROWS:
        return []
    steps = [row.counts["env_steps"] for row in rows]
    series: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(rows))
    for i, row in enumerate(rows):
        for path, ns in row.self_ns.items():
            label = shard.label_of(path)
            name = BETWEEN if label.kind in (m.ROOT, m.INFERRED) else label.name
            if label.kind == m.WAIT:
                name = shard.label_of(shard.paths[path].parent).name
            if label.kind != m.PROFILER:
                series[name][i] += ns / 1000
    grown = find_growth(series, steps, [row.merged for row in rows])
    found = [Growing(name, *sizes) for name, sizes in grown.items()]
    soon = _soon_grown(series[BETWEEN], steps) if BETWEEN in series and BETWEEN not in grown else None
    if soon is not None:  # of code between calls only: calls rise when training begins
        found.append(Growing(BETWEEN, *soon, soon=True))
    return sorted(found, key=lambda g: -(g.late_us - g.early_us))


def find_growth(
    series: Mapping[str, Sequence[float]], steps: Sequence[int], merged: Sequence[int] | None = None
) -> dict[str, tuple[float, float, float]]:
    """By label of those that matter: early and late cost per step and the excess, if it rises by the test all views use. A
    machine that is busier for a while slows everything alike, so each stretch is measured against what the rest of the loop
    took then. A label that begins later has nothing first, which is no growth."""
    totals = [sum(values[i] for values in series.values()) for i in range(len(steps))]
    costs: dict[str, list[float]] = {}
    for name, values in series.items():
        if sum(values) >= _LEAST_SHARE * sum(totals):
            busy = _busy([t - v for t, v in zip(totals, values, strict=True)], values, steps)
            costs[name] = [v / n / b if v > 0 else nan for v, n, b in zip(values, steps, busy, strict=True)]
    trends = find_trends(costs, merged)
    sizes = {name: _size(costs[name], steps) for name, trend in trends.items() if trend.verdict == "grows"}
    return {name: size for name, size in sizes.items() if size is not None}


def _size(costs: Sequence[float], steps: Sequence[int]) -> tuple[float, float, float] | None:
    began = next(i for i, cost in enumerate(costs) if cost > 0)
    bins = _bins([cost * n if cost > 0 else 0.0 for cost, n in zip(costs, steps, strict=True)][began:], steps[began:])
    if len(bins) < _BINS:
        return None
    early, late = sum(bins[:2]) / 2, sum(bins[-2:]) / 2
    whole = sum(bins) / len(bins)
    first = max(0.0, bins[0] - max(0.0, bins[1] - bins[0]) / 2)  # at the very beginning, had it been a straight line
    return (early, late, min(1.0, max(0.0, 1 - first / whole))) if late >= LEAST_RISE * early else None


def _busy(others: Sequence[float], values: Sequence[float], steps: Sequence[int]) -> list[float]:
    """By row, how much slower than usual the rest of the loop was; 1 where there is too little of it to tell."""
    rest = _bins(others, steps)
    usual = median(rest) if rest else 0.0
    if usual <= 0.25 * sum(values) / max(1, sum(steps)):
        return [1.0] * len(steps)
    return [min(2.0, max(0.5, rest[i * _BINS // len(steps)] / usual)) for i in range(len(steps))]


def _soon_grown(values: Sequence[float], steps: Sequence[int]) -> tuple[float, float, float] | None:
    """Early and late cost per step and the excess, where it rises through the first iterations and then stays: a table that is
    searched whole has seen every state. Something that begins later rises at once and has no values in between."""
    costs = [value / step for value, step in zip(values, steps, strict=True)]
    first, late = costs[0], median(costs[len(costs) // 2 :])
    if late < 1.6 * first or not 0.75 < median(costs[len(costs) // 4 : len(costs) // 2]) / late < 1.35:
        return None
    rise = list(takewhile(lambda cost: cost < 0.92 * late, costs[: len(costs) // 4]))
    on_the_way = [cost for cost in rise if cost > 1.2 * first]
    half = len(on_the_way) // 2
    if len(on_the_way) < _LEAST_BETWEEN or median(on_the_way[:half]) >= median(on_the_way[half:]):
        return None
    stays = sorted(costs[len(rise) :])
    if stays[len(stays) // 10] < (first + late) / 2:  # it comes down again: something that is emptied with each episode
        return None
    return first, late, 1 - first / late


def _bins(values: Sequence[float], steps: Sequence[int]) -> list[float]:
    """Cost per step in equal stretches of the run."""
    size = len(values) / _BINS
    if size < 1:
        return []
    cuts = [round(i * size) for i in range(_BINS + 1)]
    return [sum(values[a:b]) / max(1, sum(steps[a:b])) for a, b in pairwise(cuts)]


def _loop_memory(e: Evidence) -> list[float]:
    """Resident memory while the loop ran, in megabytes; every half second."""
    shard = e.diagnosis.learner
    begin, end = ((shard.start_unix_ns + at - shard.start_ns) / 1e9 for at in (shard.first_work_ns, shard.last_work_ns))
    return [row["rss_mb"] for row in e.session.system if "rss_mb" in row and begin <= row["unix_s"] <= end]


def memory_mb(e: Evidence) -> tuple[float, float]:
    """Resident memory at the beginning of the loop and at the end."""
    values = _loop_memory(e)
    return (median(values[:3]), median(values[-3:])) if len(values) >= 6 else (0.0, 0.0)


def memory_growth(e: Evidence) -> float:
    """Megabytes gained in the last half of the loop (in all of a short one), 0 where it reached a plateau."""
    values = _loop_memory(e)
    if len(values) < 6:
        return 0.0
    late = values[len(values) // 2 :] if len(values) >= 12 else values
    third = max(2, len(late) // 3)
    start, middle, end = median(late[:third]), median(late[third : 2 * third]), median(late[-third:])
    return end - start if end - middle > 0.3 * (middle - start) > 0 else 0.0
