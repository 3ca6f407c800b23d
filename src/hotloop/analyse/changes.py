"""Where the time per iteration jumps, and when a run has settled.

What lives here: rows merged to a common resolution, change points of the log of a series, and the warm-up read off them.
Pure arrays in, frozen results out. Invariant: whatever the numbers, no exception, no warning and no NaN in a result; a value
that is no time (NaN, infinite, negative) counts as absent.

Change points are the exact optimum of squared error plus a price per change. The price is in units of the long-run variance,
not of the variance: iterations resemble their neighbours, and with the usual price AR(1) noise of 0.9 is cut to pieces.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

MOST_POINTS = 1000  # the search is quadratic: about 5 ms per price tried, and a dozen are
SHORTEST_SEGMENT = 5
LEAST_CHANGE = math.log(1.05)  # smaller jumps are true but of no use
SAME_LEVEL = math.log(1.1)
LEAST_ROWS = 10  # for a statement about warm-up
MOST_CHANGES = 12  # a series with more has no levels
PRICE = 4.0  # of a change, in long-run variances times log n; benchmarks/trend.py counts the false ones
LONGEST_MEMORY = 0.95  # AR(1) coefficient; what remembers longer is a level
NOISE_FLOOR = 0.005  # half a percent: no run is steadier than that, and clocks tick


@dataclass(frozen=True, slots=True)
class Change:
    """The series has another level from this row on."""

    row: int  # index into the values given
    iteration: int  # the same, counting merged rows in full
    before: float  # typical value, in the unit given
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class WarmUp:
    iterations: int  # at the start, that differ from the later steady state
    seconds: float
    settled: bool  # False: there is no steady state to be warmed up for
    reason: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Neighbouring values averaged so that all stand for about the same number of iterations."""

    values: int  # how many there were
    first: NDArray[np.intp]  # row of the input where each begins
    mean: Floats
    weight: Floats  # iterations in each
    middle: Floats  # position of each, in iterations from the first value
    start: float  # where the first one begins and the last one ends, likewise
    end: float

    def __len__(self) -> int:
        return len(self.mean)


def merge_rows(values: ArrayLike, weights: ArrayLike | None, most: int, least_values: int = 1) -> Rows:
    """At most `most` rows of equal weight; absent values are left out, but the others keep their place in the run.

    `least_values` is how many values a row should be made of. A mean of many has a smaller spread and a larger logarithm than
    single values, so old merged rows and new ones must be brought to one size before they are compared. A row too heavy for
    that counts as one row.

    >>> merge_rows([1.0, 3.0, 5.0, 5.0], None, 2).mean.tolist()
    [2.0, 5.0]
    """
    value = np.asarray(values, np.float64).ravel()
    weight = np.ones(len(value)) if weights is None else np.asarray(weights, np.float64).ravel()
    if len(weight) != len(value):
        raise ValueError(f"{len(value)} values but {len(weight)} weights")
    weight = np.where(np.isfinite(weight) & (weight > 0), np.clip(weight, 1.0, 1e9), 0.0)
    end = np.cumsum(weight)
    kept = np.flatnonzero(np.isfinite(value) & (value >= 0) & (weight > 0))
    value, weight, end = value[kept], weight[kept], end[kept]
    if not len(value):
        return Rows(0, kept, value, weight, end, 0.0, 0.0)
    bins = max(1, min(most, len(value) // least_values))
    share = weight
    while share.max() * bins > share.sum() and share.max() > share.min():
        share = np.minimum(share, share.max() / 2)
    place = (np.cumsum(share) - share / 2) * (bins / share.sum())
    _, first = np.unique(np.floor(place), return_index=True)
    total = np.add.reduceat(weight, first)
    scale = value.max() or 1.0  # so that no sum overflows
    mean = np.minimum(np.add.reduceat(value / scale * weight, first) / total, 1.0) * scale
    middle = np.add.reduceat((end - weight / 2) * weight, first) / total
    return Rows(len(value), kept[first], mean, total, middle, float(end[0] - weight[0]), float(end[-1]))


def take_logs(means: Floats) -> Floats:
    """Logarithms; what is zero or next to it counts as a thousandth of the typical value, so that it weighs but not rules."""
    positive = means > 0
    if not positive.any():
        return np.zeros_like(means)
    logs = np.log(means, where=positive, out=np.full_like(means, -np.inf))
    return np.maximum(logs, float(np.median(logs[positive])) - math.log(1e3))


def find_changes(values: ArrayLike, weights: ArrayLike | None = None) -> tuple[Change, ...]:
    """The rows from which the level of a series differs by at least 5 %, in order.

    `weights` says how many iterations each value is the mean of.

    >>> [c.row for c in find_changes([1.0] * 50 + [2.0] * 50)]
    [50]
    """
    rows = merge_rows(values, weights, MOST_POINTS)
    log = take_logs(rows.mean)
    bounds = _drop_gradual_changes(log, _segment(log))
    levels = _levels(log, bounds)
    return tuple(
        Change(int(rows.first[at]), round(rows.middle[at] - rows.weight[at] / 2), _exp(before), _exp(after))
        for at, before, after in zip(bounds[1:-1], levels[:-1], levels[1:], strict=True)
    )


def find_arrivals(series: Mapping[str, ArrayLike], durations: ArrayLike) -> tuple[int, ...]:
    """Rows where a label that matters first appears: from then on it is in most rows and takes 5 % of the time or more.

    >>> nan = float("nan")
    >>> find_arrivals({"act": [1.0] * 6, "train": [nan, nan, 2.0, 2.0, 2.0, 2.0]}, [1.0, 1.0, 3.0, 3.0, 3.0, 3.0])
    (2,)
    """
    duration = _as_times(durations)
    starts = set()
    for values in series.values():
        value = _as_times(values)
        there = np.flatnonzero(value > 0)
        if not len(there) or there[0] == 0 or len(there) < (len(value) - there[0]) / 2:
            continue
        start = int(there[0])
        scale = max(value.max(), duration[start:].max(initial=0.0))  # so that no sum overflows
        if (value[start:] / scale).sum() >= 0.05 * (duration[start:] / scale).sum():
            starts.add(start)
    return tuple(sorted(starts))


def find_warm_up(durations_s: ArrayLike, weights: ArrayLike | None = None, arrivals: Sequence[int] = ()) -> WarmUp:
    """The leading iterations that are slower or faster than the steady state after them.

    `arrivals` are rows where a label first appears (see `find_arrivals`): what changes there is the work, not the machine, so
    each phase is measured against its own level and no phase is warm-up of the next.

    >>> find_warm_up([9.0, 8.0] + [1.0] * 40).iterations
    2
    """
    rows = merge_rows(durations_s, weights, MOST_POINTS)
    if len(rows) < LEAST_ROWS:
        return WarmUp(0, 0.0, False, f"{len(rows)} iterations are too few to tell; at least {LEAST_ROWS} are needed")
    log = _remove_arrivals(take_logs(rows.mean), rows, arrivals)
    bounds = _segment(log)
    levels = _levels(log, bounds)
    late = np.minimum(np.diff(bounds), np.maximum(0, np.array(bounds[1:]) - len(log) // 2))
    steady = _weighted_median(levels, late)
    near = np.abs(levels - steady) <= SAME_LEVEL
    first = bounds[int(np.argmax(near))]
    if late[near].sum() < 0.8 * late.sum() or first > len(log) // 2:
        last = round(rows.middle[bounds[-2]] - rows.weight[bounds[-2]] / 2)
        return WarmUp(0, 0.0, False, f"no steady state: {len(bounds) - 2} changes of level, the last at iteration {last}")
    drift = _find_drift(_clip_spikes(log)[first:])
    if drift:
        return WarmUp(
            0, 0.0, False, f"no steady state: × {_exp(drift):.2g} from iteration {round(rows.middle[first])} to the end"
        )
    if first <= SHORTEST_SEGMENT:  # then the first few iterations, too few to make a segment, are counted one by one
        single = merge_rows(durations_s, weights, np.size(durations_s))
        single_log = _remove_arrivals(take_logs(single.mean), single, arrivals)
        few = _count_leading_outliers(single_log, steady, SHORTEST_SEGMENT * math.ceil(len(single) / len(rows)))
        if few or not first:
            rows, log, first = single, single_log, few
    if first == 0:
        return WarmUp(0, 0.0, True, "steady from the start" + (", within each phase" if len(arrivals) else ""))
    weight, mean = rows.weight[:first], rows.mean[:first]
    iterations = round(float(weight.sum()))
    seconds = min(sum(w * s for w, s in zip(weight.tolist(), mean.tolist(), strict=True)), sys.float_info.max)
    ratio = _exp(float(np.median(log[:first])) - steady)
    return WarmUp(iterations, seconds, True, f"{iterations} at the start took {ratio:.2g} × the later time each")


def _segment(log: Floats) -> list[int]:
    """Bounds of the segments: 0, the changes, the length.

    The price of a change depends on the noise, and the noise on where the changes are: what a jump leaves behind looks like
    slow noise. So prices are tried from dear to cheap, and a cut counts if its price is right for the noise that it leaves.
    """
    n = len(log)
    bounds = [0, n]
    if n < 2 * SHORTEST_SEGMENT:
        return bounds
    y = _clip_spikes(log)
    unit = PRICE * math.log(n)
    price = min(unit * _long_run_variance(y, bounds), float(np.sum((y - y.mean()) ** 2)) / 1.5)
    least = unit * max(NOISE_FLOOR**2, _spread(np.diff(y)) ** 2 / 2)
    while price >= least:
        cut = _partition(y, price)
        if len(cut) - 2 > min(MOST_CHANGES, n // 20):
            break
        right = unit * _long_run_variance(y, cut)
        if price >= right:
            bounds = cut
        # Between a price that counts and the one its noise asks for, all count: go there at once.
        price = min(price / 1.5, max(right, least)) if price > least else 0.0
    return _drop_small_changes(log, _drop_bursts(log, bounds))


def _drop_bursts(log: Floats, bounds: list[int]) -> list[int]:
    """A short stretch after which the level is the old one again is an event, not a change of level."""
    short = max(2 * SHORTEST_SEGMENT, len(log) // 60)
    i = 1
    while i < len(bounds) - 2:
        levels = _levels(log, bounds)
        if bounds[i + 1] - bounds[i] < short and abs(levels[i + 1] - levels[i - 1]) < SAME_LEVEL:
            del bounds[i : i + 2]
        else:
            i += 1
    return bounds


def _drop_small_changes(log: Floats, bounds: list[int]) -> list[int]:
    while len(bounds) > 2:
        steps = np.abs(np.diff(_levels(log, bounds)))
        smallest = int(np.argmin(steps))
        if steps[smallest] >= LEAST_CHANGE:
            break
        del bounds[smallest + 1]
    return bounds


def _drop_gradual_changes(log: Floats, bounds: list[int]) -> list[int]:
    """Slow growth is best cut somewhere too, but nothing happens there: half of a jump must be seen close to it."""
    jumps = []
    for a, at, b in zip(bounds[:-2], bounds[1:-1], bounds[2:], strict=True):
        reach = max(SHORTEST_SEGMENT, min(at - a, b - at) // 4)
        before, after = _levels(log, [a, at, b])
        close_before, close_after = _levels(log, [at - reach, at, at + reach])
        if (close_after - close_before) / (after - before) >= 0.5:
            jumps.append(at)
    return [0, *jumps, len(log)]


def _levels(log: Floats, bounds: list[int]) -> Floats:
    return np.array([np.median(log[a:b]) for a, b in pairwise(bounds)]) if len(log) else np.zeros(1)


def _partition(y: Floats, price: float) -> list[int]:
    """Least squared error plus `price` per change over all ways to cut, by dynamic programming."""
    n = len(y)
    y = y - y.mean()
    sums = np.concatenate(([0.0], np.cumsum(y)))
    squares = np.concatenate(([0.0], np.cumsum(y * y)))
    lengths = np.arange(n, 0, -1, dtype=np.float64)  # lengths[n - end + start] == end - start
    best = np.full(n + 1, np.inf)
    best[0] = -price
    cut = np.zeros(n + 1, np.intp)
    base = best - squares  # kept beside `best`: the part of the cost that depends on the start alone
    for end in range(SHORTEST_SEGMENT, n + 1):
        last = end - SHORTEST_SEGMENT + 1
        gap = sums[end] - sums[:last]
        cost = base[:last] - gap * gap / lengths[n - end : n - end + last]
        at = int(cost.argmin())
        cut[end] = at
        best[end] = cost[at] + squares[end] + price
        base[end] = best[end] - squares[end]
    bounds = [n]
    while bounds[-1]:
        bounds.append(int(cut[bounds[-1]]))
    return bounds[::-1]


def _clip_spikes(y: Floats) -> Floats:
    """One slow iteration is not a level: bring what stands out from the median of its neighbours back to them."""
    inner = np.median(np.lib.stride_tricks.sliding_window_view(y, 5), axis=1)
    middle = np.concatenate((inner[:1], inner[:1], inner, inner[-1:], inner[-1:]))
    rest = y - middle
    width = 3.0 * max(_spread(rest), NOISE_FLOOR)
    return middle + np.clip(rest, -width, width)


def _spread(values: Floats) -> float:
    """Standard deviation, by the median: a few outliers do not count."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _long_run_variance(y: Floats, bounds: list[int]) -> float:
    """Variance of a mean of n values, times n, of what is left around the segments.

    The larger of two answers: that of an AR(1) process, right for short series, and that of batch means, which also sees
    slow noise that hides below fast jitter.
    """
    n, lost = len(y), len(bounds) - 1
    rest = np.concatenate([y[a:b] - y[a:b].mean() for a, b in pairwise(bounds)])
    variance = float(rest @ rest) / (n - lost)
    if variance <= NOISE_FLOOR**2:
        return NOISE_FLOOR**2
    phi = float(rest[1:] @ rest[:-1]) / float(rest @ rest)
    phi = min(max(phi + lost * (1 + 3 * phi) / n, 0.0), LONGEST_MEMORY)  # a fitted mean takes about (1 + 3φ) / n off
    size = max(2, int(n**0.5))
    batches = np.add.reduceat(rest, np.arange(0, n - size + 1, size))[: n // size] / size
    slow = size * float(batches @ batches) / max(1, len(batches) - lost)
    return max(variance * (1 + phi) / (1 - phi), slow)


def _find_drift(y: Floats) -> float:
    """How much a line through the values rises over their length; 0 if that is small or may be noise."""
    n = len(y)
    time = np.linspace(-0.5, 0.5, n)
    rise = float(time @ y) / float(time @ time)
    error = math.sqrt(12 / n * _long_run_variance(y - rise * time, [0, n]))
    return rise if abs(rise) > max(SAME_LEVEL, 4 * error) else 0.0


def _remove_arrivals(log: Floats, rows: Rows, arrivals: Sequence[int]) -> Floats:
    """Each phase minus its own level, taken from its second half."""
    inner = {int(np.searchsorted(rows.first, p)) for p in arrivals}
    bounds = [0, *sorted(i for i in inner if 0 < i < len(log)), len(log)]
    if len(bounds) == 2:
        return log
    out = log.copy()
    for a, b in pairwise(bounds):
        out[a:b] -= np.median(log[(a + b) // 2 : b])
    return out


def _weighted_median(values: Floats, weights: NDArray[np.int_]) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][int(np.searchsorted(reached, reached[-1] / 2))])


def _count_leading_outliers(log: Floats, steady: float, most: int) -> int:
    """How many of the first `most` are beyond all but one in a hundred of the others, and by 20 % at least, without a break."""
    rest = np.sort(np.abs(log[most:] - steady))
    usual = max(rest[min(len(rest) - 1, int(0.99 * len(rest)))], 3.5 * _spread(log), math.log(1.2))
    inside = np.flatnonzero(np.abs(log[:most] - steady) <= usual)
    return int(inside[0]) if len(inside) else most


def _as_times(values: ArrayLike) -> Floats:
    """What is no time counts as zero."""
    value = np.asarray(values, np.float64).ravel()
    return np.where(np.isfinite(value) & (value > 0), value, 0.0)


def _exp(value: float) -> float:
    return math.exp(min(value, 709.0))
