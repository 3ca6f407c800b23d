"""The statistics of a comparison: one number per run in, a difference with its interval out.

What lives here: three ways to estimate a difference of means (pairs, two sets, two sets that ran one after the other), the
permutation check, equivalence, and the power of a design. The distributions and the tests are SciPy's. Invariant: the run
is the replicate; nothing here ever sees an iteration. Fewer than two runs a side have a difference and no interval.

Columns are tested side by side: `a` and `b` are (runs, columns).
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

Floats = NDArray[np.float64]

ALPHA = 0.05
POWER = 0.8  # "four times in five"
PAIRED, WELCH, ADJUSTED = "paired", "welch", "drift-adjusted"
MOST_PAIRS = 1_000_000
_RESAMPLES = 9_999


@dataclass(frozen=True, slots=True)
class Interval:
    mid: float
    low: float | None = None
    high: float | None = None

    def map(self, function: Callable[[float], float]) -> Interval:
        """The interval of a growing function of it."""
        ends = (None if x is None else function(x) for x in (self.low, self.high))
        return Interval(function(self.mid), *ends)

    @property
    def inverse(self) -> Interval:
        """The interval of 1 / x.

        >>> Interval(0.5, 0.25, 1.0).inverse
        Interval(mid=2.0, low=1.0, high=4.0)
        """
        return Interval(1 / self.mid, None if self.high is None else 1 / self.high, None if self.low is None else 1 / self.low)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A difference B - A; without an interval where there are too few runs for one."""

    mid: float
    low: float | None = None  # 95 %
    high: float | None = None
    inner_low: float | None = None  # 90 %: what two one-sided tests at 5 % look at
    inner_high: float | None = None
    p: float | None = None
    se: float | None = None
    df: float = 0.0


def estimate(a: ArrayLike, b: ArrayLike, method: str, times: Sequence[float] = ()) -> tuple[Estimate, ...]:
    """The difference of means of each column.

    `times` are those of the runs, first A's then B's, for a design in which they did not take turns: a common linear drift is
    then part of the model, and the interval as wide as that makes it.

    >>> x = estimate([[1.0], [2.0], [3.0]], [[2.0], [3.1], [3.9]], PAIRED)[0]
    >>> round(x.mid, 3), x.low < 1 < x.high
    (1.0, True)
    """
    one, two = _columns(a), _columns(b)
    if method == PAIRED:
        return _from_pairs(two - one)
    if method == WELCH:
        return _from_sets(one, two)
    return _from_line(one, two, np.asarray(times, np.float64))


def _columns(values: ArrayLike) -> Floats:
    array = np.asarray(values, np.float64)
    return array[:, None] if array.ndim == 1 else array


def _from_pairs(differences: Floats) -> tuple[Estimate, ...]:
    n = len(differences)
    if n < 2:
        return tuple(Estimate(float(x)) for x in differences.mean(0))
    se = differences.std(0, ddof=1) / math.sqrt(n)
    return _from_test(lambda use: stats.ttest_1samp(differences[:, use], 0.0), differences.mean(0), se, n - 1.0)


def _from_sets(one: Floats, two: Floats) -> tuple[Estimate, ...]:
    mean = two.mean(0) - one.mean(0)
    if min(len(one), len(two)) < 2:
        return tuple(Estimate(float(x)) for x in mean)
    se = np.sqrt(one.var(0, ddof=1) / len(one) + two.var(0, ddof=1) / len(two))
    welch = lambda use: stats.ttest_ind(two[:, use], one[:, use], equal_var=False)
    return _from_test(welch, mean, se, len(one) + len(two) - 2.0)


def _from_test(test: Callable[[NDArray[np.bool_]], Any], mean: Floats, se: Floats, df: float) -> tuple[Estimate, ...]:
    """SciPy's test of every column that varies; where all runs agree, the difference is what it is."""
    varies = se > 1e-12 * np.abs(mean)
    out = [Estimate(float(x), float(x), float(x), float(x), float(x), float(x == 0), 0.0, df) for x in mean]
    if varies.any():
        with warnings.catch_warnings():  # runs of one side that agree to the last bits: their spread is none
            warnings.simplefilter("ignore", RuntimeWarning)
            result = test(varies)
        wide, narrow = result.confidence_interval(1 - ALPHA), result.confidence_interval(1 - 2 * ALPHA)
        degrees = np.broadcast_to(result.df, result.pvalue.shape)
        columns = (wide.low, wide.high, narrow.low, narrow.high, result.pvalue, se[varies], degrees)
        for i, row in zip(np.flatnonzero(varies), zip(*columns, strict=True), strict=True):
            out[i] = Estimate(float(mean[i]), *(float(x) for x in row))
    return tuple(out)


def _from_line(one: Floats, two: Floats, times: Floats) -> tuple[Estimate, ...]:
    values = np.concatenate((one, two))
    arm = np.repeat([0.0, 1.0], [len(one), len(two)])
    design = np.stack((np.ones(len(arm)), arm, times - times.mean()), 1)
    df = len(arm) - 3
    if df < 1 or np.linalg.matrix_rank(design) < 3:
        return tuple(Estimate(float(x)) for x in two.mean(0) - one.mean(0))
    weights = np.linalg.pinv(design)
    fitted = weights @ values
    rest = values - design @ fitted
    mean, se = fitted[1], np.sqrt((rest**2).sum(0) / df * float(weights[1] @ weights[1]))
    wide, narrow = special.stdtrit(df, 1 - ALPHA / 2) * se, special.stdtrit(df, 1 - ALPHA) * se
    t = np.divide(np.abs(mean), se, out=np.where(mean == 0, 0.0, np.inf), where=se > 0)
    p = 2 * special.stdtr(df, -t)
    columns = (mean, mean - wide, mean + wide, mean - narrow, mean + narrow, p, se)
    degrees = np.full(len(mean), float(df))
    return tuple(Estimate(*(float(x) for x in row)) for row in zip(*columns, degrees, strict=True))


def check_by_permutation(a: ArrayLike, b: ArrayLike, paired: bool) -> float:
    """How often relabelling the runs gives a difference as large; exact where there are few runs.

    >>> check_by_permutation([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], True)
    0.25
    """
    one, two = np.asarray(a, np.float64), np.asarray(b, np.float64)
    rng = np.random.default_rng(0)  # the same runs give the same answer
    if paired:
        result = stats.permutation_test(
            (two - one,), lambda d, axis=-1: np.mean(d, axis=axis), permutation_type="samples", vectorized=True,
            n_resamples=_RESAMPLES, random_state=rng,
        )  # fmt: skip
    else:
        result = stats.permutation_test(
            (one, two), lambda x, y, axis=-1: np.mean(y, axis=axis) - np.mean(x, axis=axis), permutation_type="independent",
            vectorized=True, n_resamples=_RESAMPLES, random_state=rng,
        )  # fmt: skip
    return float(min(1.0, result.pvalue))


def widen(x: Estimate, shift: float) -> Estimate:
    """The same where the truth may be up to `shift` further than what was measured, in its direction.

    >>> widen(Estimate(0.0, -0.1, 0.1), -0.05)
    Estimate(mid=0.0, low=-0.15000000000000002, high=0.1, inner_low=None, inner_high=None, p=None, se=None, df=0.0)
    """
    ends = ("low", "inner_low") if shift < 0 else ("high", "inner_high")
    return replace(x, **{end: getattr(x, end) + shift for end in ends if getattr(x, end) is not None})


def as_change(log_ratio: float) -> float:
    """A difference of logarithms as a share; what is beyond all measure stays a number.

    >>> round(as_change(0.1), 3)
    0.105
    """
    return math.expm1(min(log_ratio, 500.0))


def is_within(x: Estimate, low: float, high: float) -> bool:
    """Two one-sided tests at 5 %: is the difference shown to lie between the two?"""
    return x.inner_low is not None and x.inner_high is not None and low < x.inner_low and x.inner_high < high


# ---- what a design can see ----


def power_of(effect: float, se: float, df: float) -> float:
    """How often a difference of that size is found at 5 %."""
    if se <= 0:
        return 1.0
    limit = float(special.stdtrit(df, 1 - ALPHA / 2))
    shift = abs(effect) / se
    if shift > 30 or df > 2000:
        return float(special.ndtr(shift - limit))
    return float(1 - special.nctdtr(df, shift, limit))


def find_detectable(se: float, df: float) -> float:
    """The smallest difference that this design finds four times in five."""
    if se <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while power_of(high * se, se, df) < POWER and high < 1e9:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if power_of(middle * se, se, df) < POWER else (low, middle)
    return high * se


def count_needed_pairs(sd: float, effect: float, least: int = 2) -> int:
    """How many pairs, whose differences spread by `sd`, find that effect four times in five.

    >>> count_needed_pairs(0.0827, 0.0198)
    139
    """
    numbers = range(least, MOST_PAIRS)
    return least + bisect_left(numbers, True, key=lambda n: power_of(effect, sd / math.sqrt(n), n - 1) >= POWER)


def find_drift(values: ArrayLike, arms: Sequence[int], order: ArrayLike) -> tuple[float, float]:
    """How far the level moves from the first run to the last, whichever arm they belong to, and the p-value of that."""
    value, arm, place = np.asarray(values, np.float64), np.asarray(arms), np.asarray(order, np.float64)
    length = float(np.ptp(place)) if len(place) else 0.0
    if len(value) < 4 or length <= 0:
        return 0.0, 1.0
    design = np.stack((*(np.where(arm == k, 1.0, 0.0) for k in np.unique(arm)), (place - place.min()) / length), 1)
    df = len(value) - design.shape[1]
    if df < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        return 0.0, 1.0
    weights = np.linalg.pinv(design)
    fitted = weights @ value
    rest = value - design @ fitted
    error = math.sqrt(float(rest @ rest) / df * float(weights[-1] @ weights[-1]))
    move = float(fitted[-1])
    return move, float(2 * special.stdtr(df, -abs(move) / error)) if error > 0 else 1.0
