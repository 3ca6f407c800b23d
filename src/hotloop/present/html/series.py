"""The iterations as the page shows them: curves of a bounded number of points, what they say in words, the slowest ones.

What lives here: gathering and wording. Invariants: at most MAX_POINTS points; a gathered point is the mean over its iterations,
and the largest of them is kept beside it, so that no spike disappears.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..units import duration_text, share_text
from .names import Names, show

if TYPE_CHECKING:
    from ...analyse.changes import Change
    from ...analyse.iterations import Iterations, LabelTrend, Series, SlowIteration

Floats = NDArray[np.float64]
MAX_POINTS = 1000
STACKED = 7  # labels with a colour of their own
TRENDS = 8
CHANGES = 6


def history_data(history: Iterations, names: Names) -> dict[str, Any]:
    return {
        "points": _points(history.series, names),
        "warm_up": history.warm_up.iterations if history.warm_up.settled else 0,
        "words": _say(history),
        "changes": [int(history.series.first[0]) + change.iteration for change in history.changes[:CHANGES]],
        "percentiles": {name: _round(value) for name, value in history.percentiles.items()},
        "slowest": [_slow(slow, names) for slow in history.slowest],
    }


def _points(series: Series, names: Names) -> dict[str, Any]:
    edges = np.arange(0, len(series.seconds), max(1, math.ceil(len(series.seconds) / MAX_POINTS)))
    merged = np.add.reduceat(series.merged, edges)

    def mean(values: Floats, weights: NDArray[Any]) -> list[float | None]:
        known = np.where(np.isfinite(values), weights, 0.0)
        sums = np.add.reduceat(np.where(known > 0, values, 0.0) * known, edges)
        weight = np.add.reduceat(known, edges)
        return [_round(s / w) if w else None for s, w in zip(sums.tolist(), weight.tolist(), strict=True)]

    rate = "env_steps" if "env_steps" in series.rates else next(iter(series.rates), "")
    by_size = sorted(series.exclusive, key=lambda name: (-float(np.sum(series.exclusive[name] * series.merged)), name))
    stacked = [[names(name), mean(series.exclusive[name], series.merged)] for name in by_size[:STACKED]]
    rest = [series.exclusive[name] for name in by_size[STACKED:]]
    if rest:
        stacked.append([-1, mean(np.sum(rest, axis=0), series.merged)])
    return {
        "first": series.first[edges].tolist(),
        "merged": merged.tolist(),
        "start_s": [_round(value) for value in series.start_s[edges].tolist()],
        "seconds": mean(series.seconds, series.merged),
        "largest": [_round(value) for value in np.maximum.reduceat(series.seconds, edges).tolist()],
        "rate": show(rate, 60),
        "per_second": mean(series.rates[rate], series.seconds * series.merged) if rate else [],
        "stacked": stacked,
        "others": len(rest),
    }


def _say(history: Iterations) -> list[str]:
    """Warm-up, changes and trends in sentences, the run as a whole first."""
    said = [f"Warm-up: {history.warm_up.reason}.", f"Time per iteration: {history.overall.verdict}, {history.overall.reason}."]
    said += [_say_change(change, int(history.series.first[0])) for change in history.changes[:CHANGES]]
    said += [_say_trend(trend) for trend in history.trends[:TRENDS]]
    if len(history.trends) > TRENDS:
        said.append(f"{len(history.trends) - TRENDS} more labels change with the run, with less effect.")
    return [show(text, 300) for text in said]


def _say_change(change: Change, first: int) -> str:
    before, after = duration_text(change.before * 1e9), duration_text(change.after * 1e9)
    return f"From iteration {first + change.iteration:,} on an iteration takes {after}, before it took {before}."


def _say_trend(found: LabelTrend) -> str:
    causes = {"times the calls": found.calls_growth, "times the cost of a call": found.cost_growth}
    why = [f"{growth:.2f} {what}" for what, growth in causes.items() if abs(growth - 1) > 0.05]
    because = f": {', '.join(why)}" if why else ""
    name, share = show(found.name, 80), share_text(found.share)
    return f"“{name}” {found.trend.verdict}, {found.trend.reason}{because}. It is {share} of the iterations’ time."


def _slow(slow: SlowIteration, names: Names) -> dict[str, Any]:
    return {
        "number": slow.number,
        "merged": slow.merged,
        "seconds": _round(slow.seconds),
        "times_median": _round(slow.times_median),
        "excess": [[names(name), _round(seconds)] for name, seconds in slow.excess],
        "parent": [row.parent for row in slow.sheet.rows],
        "name": [names(("≈ " if row.inferred else "") + row.name) for row in slow.sheet.rows],
        "total_s": [_round(row.ns / 1e9 / slow.merged) for row in slow.sheet.rows],
    }


def round_number(value: float | None, digits: int = 6) -> float | None:
    """As short as it may be written; None for what is no number."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def _round(value: float) -> float | None:
    return round_number(value, 5)
