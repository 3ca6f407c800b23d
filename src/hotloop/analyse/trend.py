"""Does the cost of a label grow with the run?

What lives here: the trend test on batch means, and the correction for many tests. Pure arrays in, frozen results out.
Invariant: whatever the numbers, no exception, no warning and no NaN in a result; a statistic that cannot be had is
"undecided".

Iterations resemble their neighbours, so a test that counts them one by one finds trends in noise (28-64 % of the time). Here
the run is cut into at most 30 batches, and a line is fitted to the logarithms of their means by generalised least squares.
How long the noise remembers is unknown, so the fit is made for every memory on a grid, and the answers are averaged by how well
each explains the data: a mixture of t distributions, whose tail is the p-value and whose quantiles are the interval.
Rejected: t or rank tests on 10 or 20 batches (25-45 % false alarms on 60 iterations of AR(1) noise with 0.9, 10-20 % on 200),
one estimated memory (16 %, 8 %). `benchmarks/trend.py` measures the level and what is found.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .changes import Floats, Rows, find_changes, merge_rows, take_logs

LEAST_VALUES = 30
MOST_BATCHES = 30
LEVEL = 0.05
MATTERS = math.log(1.1)  # growth below 10 % over the run is not worth a word
FLAT_WITHIN = math.log(2)  # "flat" promises that a growth of 2 × is ruled out
STEP_ODDS = math.log(10)  # how much better than a line a step must explain the data
# Iterations resemble each other as exp(-rate × distance); per batch the rate is this times smaller or larger.
RATES = np.geomspace(0.02, 20, 24)
WIDEST = 20.0  # the largest log growth stated: 5·10⁸ ×
RESOLUTION = 1e-4  # relative noise that no clock and no machine stays below


@dataclass(frozen=True, slots=True)
class Trend:
    verdict: str  # grows, falls, flat or undecided
    p_value: float  # that there is no trend; corrected for the number of labels by `find_trends`
    growth: float  # fitted end over fitted start
    growth_low: float  # 95 % interval
    growth_high: float
    batches: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Whitened:
    """A design, or several, seen through every memory on the grid, and what of the fit does not depend on the data."""

    x: Floats  # (designs,) rates, batches, columns
    inverse: Floats  # of the normal matrix
    volume: Floats  # half its log determinant

    @property
    def freedom(self) -> int:
        return int(self.x.shape[-2]) - int(self.x.shape[-1])


@dataclass(frozen=True, slots=True)
class _Slope:
    """The posterior of one coefficient: a mixture of t distributions."""

    weight: Floats
    centre: Floats
    error: Floats
    freedom: int

    def below(self, values: Floats) -> Floats:
        from scipy.special import stdtr

        return stdtr(self.freedom, (values[:, None] - self.centre) / self.error) @ self.weight  # type: ignore[no-any-return]

    def quantiles(self, *shares: float) -> Floats:
        from scipy.special import stdtrit

        share = np.array(shares)
        ends = self.centre + self.error * stdtrit(self.freedom, share[:, None])
        low, high = ends.min(axis=1), ends.max(axis=1)
        for _ in range(30):
            middle = (low + high) / 2
            short = self.below(middle) < share
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return (low + high) / 2  # type: ignore[no-any-return]

    @property
    def p_value(self) -> float:
        below = float(self.below(np.zeros(1))[0])
        return min(1.0, max(0.0, 2 * min(below, 1 - below)))


def find_trend(values: ArrayLike, weights: ArrayLike | None = None) -> Trend:
    """Whether a series of times per iteration grows or falls with the run.

    NaN where the label was absent; `weights` says how many iterations each value is the mean of.

    >>> find_trend(np.linspace(1.0, 2.0, 100)).verdict
    'grows'
    >>> find_trend([1.0, 2.0, 3.0]).verdict
    'undecided'
    """
    trend = _fit_trend(values, weights)
    return _judge(trend, trend.p_value)


def find_trends(series: Mapping[str, ArrayLike], weights: ArrayLike | None = None) -> dict[str, Trend]:
    """`find_trend` for every label, p-values corrected by Holm: of all trends found in noise together, 5 %."""
    trends = {label: _fit_trend(values, weights) for label, values in series.items()}
    tested = [label for label, trend in trends.items() if not trend.verdict]
    adjusted = dict(zip(tested, correct_by_holm([trends[label].p_value for label in tested]), strict=True))
    return {label: _judge(trend, adjusted.get(label, trend.p_value)) for label, trend in trends.items()}


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """p-values such that of all that are below 5 % by chance, in one family, there are any in 5 % of the families.

    >>> correct_by_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    out, reached = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        reached = max(reached, min(1.0, p_values[i] * (len(p_values) - rank)))
        out[i] = reached
    return out


def _fit_trend(values: ArrayLike, weights: ArrayLike | None) -> Trend:
    """The numbers, without a verdict unless none can be reached; `reason` holds the step that was taken out, if any."""
    rows = merge_rows(values, weights, MOST_BATCHES, least_values=2)
    if rows.values < LEAST_VALUES:
        seen = f"{rows.values} iteration{'s' * (rows.values != 1)} with this label"
        return Trend("undecided", 1.0, 1.0, _exp(-WIDEST), _exp(WIDEST), 0, f"{seen}; at least {LEAST_VALUES} are needed")
    if not rows.mean.max() > 0:
        return Trend("flat", 1.0, 1.0, 1.0, 1.0, len(rows), "it took no time")
    time = (rows.middle - rows.start) / (rows.end - rows.start)
    raw = take_logs(rows.mean)
    log = _clip_outliers(raw, time)
    prior = _weigh_rates(rows)
    line, evidence = _fit(log, (time,), prior)
    p_value, step = line.p_value, ""
    at, step_evidence = _find_step(log, prior)
    if step_evidence - evidence > STEP_ODDS:
        line = _fit_around_step(log, time, at, prior)
        p_value = min(1.0, 2 * line.p_value)  # the second model that was tried
        height = _exp(float(np.median(raw[at + 1 :]) - np.median(raw[: at - 1])))
        step = f"a step of × {height:.2f} at iteration {_locate(values, weights, rows, at)}"
    low, middle, high = map(_exp, line.quantiles(0.025, 0.5, 0.975))
    return Trend("", p_value, middle, low, high, len(rows), step)


def _fit_around_step(log: Floats, time: Floats, at: int, prior: Floats) -> _Slope:
    """The trend that is left when the levels before and after batch `at` may differ."""
    batch = np.arange(len(log))
    settled = len(log) // 5
    if at <= settled:  # a warm-up: it seldom ends at once, so all of the first fifth is left out
        return _fit(log[settled:], (time[settled:],), prior)[0]
    # The batch with the step in it is neither before nor after; its neighbour may be it, so both get a level of their own.
    return _fit(log, (time, batch > at, batch == at, batch == at - 1), prior)[0]


def _judge(trend: Trend, p_value: float) -> Trend:
    if trend.verdict:
        return trend
    size = math.log(trend.growth)
    change = f"× {trend.growth:.2f} over the run ({trend.growth_low:.2f}-{trend.growth_high:.2f})"
    if p_value < LEVEL and abs(size) >= MATTERS:
        verdict = "grows" if size > 0 else "falls"
        reason = change + (f", besides {trend.reason}" if trend.reason else "")
    elif trend.reason:
        verdict, reason = "flat", f"{trend.reason}, no trend before or after it"
    elif p_value < LEVEL:
        verdict, reason = "flat", f"{change}: certain, but below 10 %"
    elif max(math.log(trend.growth_high), -math.log(trend.growth_low)) < FLAT_WITHIN:
        verdict, reason = "flat", f"no trend: {change}"
    else:
        verdict, reason = "undecided", f"too noisy for its length: {change}"
    return replace(trend, verdict=verdict, p_value=p_value, reason=reason)


@lru_cache(maxsize=32)
def _make_whiteners(count: int) -> tuple[Floats, Floats]:
    """For every rate, the matrix that makes batch means of such noise independent, and the log determinant of it.

    The noise is an Ornstein-Uhlenbeck process (AR(1) in continuous time), averaged over each batch.
    """
    lag = np.arange(count, dtype=np.float64)
    rate = RATES[:, None]
    fall = np.exp(-rate)
    covariance = (1 - fall) ** 2 * np.exp(-rate * np.maximum(0, lag - 1))
    covariance[:, 0] = 2 * (RATES - 1 + fall[:, 0])
    covariance /= covariance[:, :1]
    root = np.linalg.cholesky(covariance[:, np.abs(np.subtract.outer(lag, lag)).astype(int)])
    return np.linalg.inv(root), -np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)


def _weigh_rates(rows: Rows) -> Floats:
    """Log prior: per iteration, the rate is Gamma(0.45) distributed: mostly short memory, but a long one is never ruled out."""
    rate = RATES * len(rows) / rows.weight.sum()
    return 0.45 * np.log(rate) - rate  # type: ignore[no-any-return]


def _whiten(design: Floats) -> _Whitened:
    """Of one design (batches × columns), or of several stacked in front."""
    x = _make_whiteners(design.shape[-2])[0] @ design[..., None, :, :]
    normal = np.swapaxes(x, -1, -2) @ x
    return _Whitened(x, np.asarray(np.linalg.inv(normal), np.float64), np.linalg.slogdet(normal)[1] / 2)


@lru_cache(maxsize=32)
def _make_steps(count: int) -> tuple[NDArray[np.intp], _Whitened]:
    """All designs with one step: the batch it is in, and the design. It may come between two batches or within one."""
    place = np.arange(2.0, count - 1.5, 0.5)
    after = np.clip(np.arange(count) - place[:, None] + 1, 0, 1)
    return np.floor(place).astype(np.intp), _whiten(np.stack((np.ones_like(after), after), -1))


def _solve(log: Floats, design: _Whitened, prior: Floats) -> tuple[Floats, Floats, Floats]:
    """Per design and rate: second coefficient, residual sum of squares, log evidence."""
    whitener, determinant = _make_whiteners(len(log))
    y = whitener @ (log - log.mean())
    projected = np.einsum("...rbc,rb->...rc", design.x, y)
    beta = np.einsum("...cd,...d->...c", design.inverse, projected)
    freedom = design.freedom
    rest = np.maximum((y * y).sum(-1) - (beta * projected).sum(-1), freedom * RESOLUTION**2)
    return beta[..., 1], rest, determinant - design.volume - freedom / 2 * np.log(rest) + prior


def _fit(log: Floats, columns: Sequence[NDArray[Any]], prior: Floats) -> tuple[_Slope, float]:
    """Coefficient of the first column beside a constant, and the log evidence for the model, up to a constant."""
    design = _whiten(np.stack((np.ones(len(log)), *columns), 1).astype(np.float64))
    slope, rest, evidence = _solve(log, design, prior)
    weight = np.exp(evidence - evidence.max())
    total = float(weight.sum())
    error = np.sqrt(rest / design.freedom * design.inverse[:, 1, 1])
    return _Slope(weight / total, slope, error, design.freedom), float(evidence.max()) + math.log(total)


def _find_step(log: Floats, prior: Floats) -> tuple[int, float]:
    """The batch in which a second level begins, if one does, and the log evidence for a step wherever it is."""
    place, designs = _make_steps(len(log))
    evidence = _solve(log, designs, prior)[2]
    top = float(evidence.max())
    per_place = np.exp(evidence - top).sum(axis=1)
    return int(place[int(np.argmax(per_place))]), top + math.log(float(per_place.mean()))


def _locate(values: ArrayLike, weights: ArrayLike | None, rows: Rows, batch: int) -> int:
    """The iteration of a step: the change point next to it, so that all views name the same one, or the batch's own."""
    near = float(rows.middle[batch] - rows.weight[batch] / 2)
    changes = [change.iteration for change in find_changes(values, weights)]
    best = min(changes, key=lambda iteration: abs(iteration - near), default=round(near))
    return best if abs(best - near) <= 2 * float(rows.weight[batch]) else round(near)


def _clip_outliers(log: Floats, time: Floats) -> Floats:
    """Batches far off the median line are brought near it: one long pause must neither make a trend nor hide one."""
    i, j = np.triu_indices(len(log), 1)
    line = np.median((log[j] - log[i]) / (time[j] - time[i])) * time
    rest = log - line
    line = line + np.median(rest)
    rest = log - line
    width = 3.5 * max(1.4826 * float(np.median(np.abs(rest))), float(np.mean(np.abs(rest))))
    return line + np.clip(rest, -width, width)


def _exp(value: float) -> float:
    return math.exp(min(WIDEST, max(-WIDEST, value)))
