"""What the iterations say: the series over the run, warm-up, trends, and the slowest ones.

What lives here: iteration rows in, frozen results out. A row is one iteration, or neighbours merged pairwise when the run is
long; every value is per iteration, and `merged` says over how many it is a mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..model import shard as m
from ..model.sheet import Sheet, fold_small, sheet_of_iterations
from .changes import Change, WarmUp, find_arrivals, find_changes, find_warm_up
from .trend import Trend, find_trends

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LABELS_TESTED = 24  # trends are looked for in the largest ones: each further test makes all others weaker
SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Series:
    """One value per row, in the order of the run. Times are thread-time of the process that counts the iterations."""

    first: NDArray[np.int64]  # number of the first iteration in the row
    merged: NDArray[np.int64]
    start_s: Floats  # since the first iteration began
    seconds: Floats  # per iteration
    sps: Floats  # env steps per second of the row; NaN where none were counted
    rates: dict[str, Floats]  # every work counter, per second
    labels: dict[str, Floats]  # seconds in the label and below it, per iteration; the largest labels
    calls: dict[str, Floats]  # calls per iteration
    exclusive: dict[str, Floats]  # seconds in the label itself


@dataclass(frozen=True, slots=True)
class LabelTrend:
    """A label whose time per iteration changes with the run, and why: more calls, or dearer ones."""

    name: str
    trend: Trend
    calls_growth: float
    cost_growth: float
    share: float  # of the iterations' time


@dataclass(frozen=True, slots=True)
class SlowIteration:
    number: int
    merged: int
    seconds: float
    times_median: float
    excess: tuple[tuple[str, float], ...]  # label itself, seconds above its median; largest first
    sheet: Sheet  # where its time went, small rows gathered; of all `merged` together


@dataclass(frozen=True, slots=True)
class Iterations:
    closed: int
    series: Series
    warm_up: WarmUp
    changes: tuple[Change, ...]  # of the time per iteration
    steady: slice  # rows after the warm-up
    percentiles: dict[str, float]  # seconds per iteration after the warm-up
    overall: Trend  # of the time per iteration
    trends: tuple[LabelTrend, ...]  # only those that grow or fall, largest effect on the run first
    slowest: tuple[SlowIteration, ...]


def read_iterations(shard: m.Shard) -> Iterations | None:
    """The iterations of the process that counts them; None without any."""
    rows = whole_rows(shard.iterations)
    if not rows:
        return None
    series = make_series(shard, rows)
    arrivals = find_arrivals(series.labels, series.seconds)
    warm_up = find_warm_up(series.seconds, series.merged, arrivals)
    begin = int(np.searchsorted(np.cumsum(series.merged), warm_up.iterations, "right")) if warm_up.settled else 0
    begin = begin if begin < len(rows) else 0
    steady = slice(begin, len(rows))
    seconds = np.repeat(series.seconds[steady], np.minimum(series.merged[steady], 64))
    percentiles = {f"p{q}": float(np.percentile(seconds, q)) for q in (5, 50, 95, 99)}
    percentiles["mean"] = float(np.average(series.seconds[steady], weights=series.merged[steady]))
    overall, trends = _trends(series, steady)
    return Iterations(
        closed=shard.iterations_closed,
        series=series,
        warm_up=warm_up,
        changes=find_changes(series.seconds, series.merged),
        steady=steady,
        percentiles=percentiles,
        overall=overall,
        trends=trends,
        slowest=_slowest(shard, rows, series, begin, percentiles["p50"]),
    )


def whole_rows(rows: Iterable[m.Iteration]) -> list[m.Iteration]:
    """Rows that stand for an iteration and took time; a damaged file may hold others."""
    return [row for row in rows if row.merged > 0 and row.end_ns > row.start_ns]


def make_series(shard: m.Shard, rows: Sequence[m.Iteration]) -> Series:
    merged = np.array([r.merged for r in rows], np.int64)
    bounds = np.array([(r.start_ns, r.end_ns) for r in rows], np.int64)
    taken_s = (bounds[:, 1] - bounds[:, 0]) / 1e9
    rates: dict[str, Floats] = {}
    for name in sorted({name for r in rows for name in r.counts}):
        counts = np.array([r.counts.get(name, 0) for r in rows], np.float64)
        if counts.any():
            rates[name] = counts / taken_s
    at, paths, self_ns = _flatten([r.self_ns for r in rows], len(shard.paths))
    calls_at, calls_paths, calls_n = _flatten([r.calls for r in rows], len(shard.paths))
    below, itself = _paths_of_labels(shard)
    largest = _largest_labels(below, paths, self_ns, len(shard.paths))

    def per_iteration(chosen: set[int], at: Ints, paths: Ints, what: Ints) -> Floats:
        mask = np.zeros(len(shard.paths), bool)
        mask[list(chosen)] = True
        use = mask[paths] if len(paths) else np.empty(0, bool)
        return np.bincount(at[use], weights=what[use], minlength=len(rows)) / merged

    return Series(
        first=np.array([r.first for r in rows], np.int64),
        merged=merged,
        start_s=(bounds[:, 0] - bounds[0, 0]) / 1e9,
        seconds=taken_s / merged,
        sps=rates.get("env_steps", np.full(len(rows), np.nan)),
        rates=rates,
        labels={name: per_iteration(below[name], at, paths, self_ns) / 1e9 for name in largest},
        calls={name: per_iteration(itself[name], calls_at, calls_paths, calls_n) for name in largest},
        exclusive={name: per_iteration(itself[name], at, paths, self_ns) / 1e9 for name in largest},
    )


def _flatten(by_path: Sequence[Mapping[int, int]], paths: int) -> tuple[Ints, Ints, Ints]:
    """What rows hold by path, as columns: row, path, value."""
    flat = [(i, path, value) for i, held in enumerate(by_path) for path, value in held.items() if path < paths]
    rows, chosen, values = (np.array(column) for column in zip(*flat, strict=True)) if flat else (np.empty(0, np.int64),) * 3
    return rows, chosen, values


def _paths_of_labels(shard: m.Shard) -> tuple[dict[str, set[int]], dict[str, set[int]]]:
    """Per label: the paths at or below it, and the paths that are it."""
    above: list[frozenset[str]] = []
    below: dict[str, set[int]] = {}
    itself: dict[str, set[int]] = {}
    for i, path in enumerate(shard.paths):
        label = shard.labels[path.label]
        names = above[path.parent] if i and path.parent < i else frozenset()
        if label.kind in (m.USER, m.OVERFLOW):
            names |= {label.name}
            itself.setdefault(label.name, set()).add(i)
        above.append(names)
        for name in names:
            below.setdefault(name, set()).add(i)
    return below, itself


def _largest_labels(below: dict[str, set[int]], paths: NDArray[np.int64], self_ns: NDArray[np.int64], size: int) -> list[str]:
    by_path = np.bincount(paths, weights=self_ns, minlength=size) if len(paths) else np.zeros(size)
    totals = {name: float(by_path[list(chosen)].sum()) for name, chosen in below.items()}
    return [name for name in sorted(totals, key=lambda n: (-totals[n], n)) if totals[name] > 0][:LABELS_TESTED]


def _trends(series: Series, steady: slice) -> tuple[Trend, tuple[LabelTrend, ...]]:
    warm = np.arange(len(series.seconds)) < steady.start  # absent, not cut off: the tests speak of iterations by number
    absent = {name: np.where(warm, np.nan, column) for name, column in {"": series.seconds, **series.labels}.items()}
    found = find_trends(absent, series.merged)
    weights = series.merged[steady]
    values = {name: column[steady] for name, column in series.labels.items()}
    whole = float(np.sum(series.seconds[steady] * weights))
    out = []
    for name, column in values.items():
        trend = found[name]
        if trend.verdict not in ("grows", "falls"):
            continue
        calls = series.calls[name][steady]
        calls_growth = _ends_ratio(calls, weights)
        growth = _ends_ratio(column, weights)
        share = float(np.sum(column * weights)) / whole if whole else 0.0
        out.append(LabelTrend(name, trend, calls_growth, growth / calls_growth if calls_growth else 1.0, min(1.0, share)))
    out.sort(key=lambda t: -abs(t.trend.growth - 1) * t.share)
    return found[""], tuple(out)


def _ends_ratio(values: Floats, weights: NDArray[np.int64]) -> float:
    """Mean of the last quarter over the mean of the first."""
    quarter = max(1, len(values) // 4)
    first = float(np.average(values[:quarter], weights=weights[:quarter]))
    last = float(np.average(values[-quarter:], weights=weights[-quarter:]))
    return last / first if first > 0 else 1.0


def _slowest(
    shard: m.Shard, rows: Sequence[m.Iteration], series: Series, begin: int, median: float
) -> tuple[SlowIteration, ...]:
    order = [int(i) for i in np.argsort(-series.seconds, kind="stable") if i >= begin][:SLOWEST]
    usual = {name: float(np.median(column[begin:])) for name, column in series.exclusive.items()}
    out = []
    for i in order:
        excess = {name: float(column[i]) - usual[name] for name, column in series.exclusive.items()}
        top = sorted(((n, s) for n, s in excess.items() if s > 0), key=lambda x: -x[1])[:3]
        row = rows[i]
        sheet = sheet_of_iterations(shard, [row])
        sheet = fold_small(sheet, sheet.wall_ns // 200, most_children=8, most_depth=6)
        seconds = float(series.seconds[i])
        out.append(SlowIteration(row.first, row.merged, seconds, seconds / median if median else 1.0, tuple(top), sheet))
    return tuple(out)
