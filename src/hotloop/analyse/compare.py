"""Did it help? Two sets of runs, one of four verdicts.

What lives here: runs in, `Comparison` out. Invariants: the run is the replicate; the ratio is of mean time per unit of work, on
logarithms of run means; the components' differences add up to the total difference, in whole nanoseconds; fewer than five runs
a side get no verdict; what speaks against comparing at all is said, and then the verdict is "undecided".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import UsageError
from ..model.sheet import split_exactly
from . import stats
from .refusals import Quality, find_refusals, judge_quality
from .runs import OWN, UNTRACKED, Floats, Run
from .stats import Interval
from .trend import correct_by_holm

FASTER, SLOWER, EQUIVALENT, UNDECIDED = "faster", "slower", "equivalent", "undecided"
LEAST_RUNS = 5  # a side, for a verdict
SMALL_SHARE = 0.005  # of the time of both arms: gathered, because each further test makes all others weaker
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Component:
    """A label's own time in the mean run of each arm, at equal work."""

    name: str
    a_ns: int
    b_ns: int
    low_ns: float | None  # of the difference, 95 %, not corrected
    high_ns: float | None
    p: float | None  # corrected by Holm
    verdict: str

    @property
    def delta_ns(self) -> int:
        return self.b_ns - self.a_ns


@dataclass(frozen=True, slots=True)
class Returned:
    """What the scripts say they have achieved."""

    a: float
    b: float
    difference: Interval
    verdict: str  # "better", "worse", "undecided"


@dataclass(frozen=True, slots=True)
class Comparison:
    verdict: str
    reason: str  # why it is undecided, if it is
    refused: bool
    unit: str
    work: int  # units a run that the components refer to
    method: str
    margin: float
    ratio: Interval  # B / A, of time per unit of work
    median: Interval  # the same of the runs' medians and 95th percentiles
    p95: Interval
    p: float | None
    p_permutation: float | None
    detectable: float | None  # as a share: the smallest change this design finds four times in five
    needed_pairs: int | None  # to find a change of the margin four times in five
    needed_is_least: bool  # True: from the iterations of single runs, which do not show how runs differ
    components: tuple[Component, ...]  # largest difference first
    total: Component
    quality: Quality
    returned: Returned | None
    a: tuple[Run, ...]
    b: tuple[Run, ...]

    @property
    def pairs(self) -> int:
        return min(len(self.a), len(self.b))

    @property
    def speedup(self) -> Interval:
        return self.ratio.inverse


def compare_runs(
    a: Sequence[Run], b: Sequence[Run], margin: float = 0.02, paired: bool = False, despite: Sequence[str] = ()
) -> Comparison:
    """Compare two sets of runs. `paired`: they ran in pairs, in the order of their start."""
    if not a or not b:
        raise UsageError("one side has no run; give at least one session for A and one for B")
    a, b, method = _arrange(sorted(a, key=lambda r: r.start_s), sorted(b, key=lambda r: r.start_s), paired)
    times = [run.start_s for run in (*a, *b)]
    per_unit = _logs([run.ns_per_unit for run in a]), _logs([run.ns_per_unit for run in b])
    (main,) = stats.estimate(*per_unit, method, times)
    main = stats.widen(main, _late(a) - _late(b))
    few = min(len(a), len(b)) < LEAST_RUNS
    permutation = None if few or method == stats.ADJUSTED else stats.check_by_permutation(*per_unit, method == stats.PAIRED)
    refusals = [text for key, text in find_refusals(a, b) if key not in despite]
    verdict, reason = _judge(main, margin, permutation, few, refusals, min(len(a), len(b)))
    sd = _spread_of_pairs(main, a, b)
    work, total, components = _attribute(a, b, method, margin)
    return Comparison(
        verdict=verdict, reason=reason, refused=bool(refusals), unit=a[0].unit, work=work, method=method, margin=margin,
        ratio=_ratio(main), median=_ratio_of(a, b, 0.5, method, times), p95=_ratio_of(a, b, 0.95, method, times),
        p=main.p, p_permutation=permutation,
        detectable=stats.as_change(stats.find_detectable(main.se, main.df)) if main.se is not None and main.df >= 1 else None,
        needed_pairs=stats.count_needed_pairs(sd, math.log1p(margin), LEAST_RUNS) if sd is not None else None,
        needed_is_least=main.se is None, components=components, total=total, quality=judge_quality(a, b, per_unit),
        returned=_compare_returns(a, b, method, times), a=tuple(a), b=tuple(b),
    )  # fmt: skip


# ---- the design ----


def _arrange(a: list[Run], b: list[Run], paired: bool) -> tuple[list[Run], list[Run], str]:
    """Pairs side by side, if they are pairs, and the method that fits."""
    units = {run.unit for run in (*a, *b)}
    if len(units) > 1:
        raise UsageError(f"the runs are measured in different units ({', '.join(sorted(units))}); give one with --unit")
    by_pair = [{run.pair: run for run in arm if run.pair is not None} for arm in (a, b)]
    both = sorted(by_pair[0].keys() & by_pair[1].keys())
    if both and len(both) == len(a) == len(b):
        return [by_pair[0][i] for i in both], [by_pair[1][i] for i in both], stats.PAIRED
    if paired:
        if len(a) != len(b):
            raise UsageError(f"{len(a)} runs against {len(b)} are no pairs; leave out --paired")
        return a, b, stats.PAIRED
    apart = a[-1].start_s < b[0].start_s or b[-1].start_s < a[0].start_s
    return a, b, stats.ADJUSTED if apart and min(len(a), len(b)) > 1 else stats.WELCH


def _logs(values: Sequence[float]) -> Floats:
    return np.log(np.asarray(values, np.float64))


def _late(arm: Sequence[Run]) -> float:
    """The most that recording may have added to the logarithm of an arm's time."""
    return sum(-math.log1p(-run.late_share) for run in arm) / len(arm)


def _ratio(x: stats.Estimate) -> Interval:
    return Interval(x.mid, x.low, x.high).map(lambda v: math.exp(min(max(v, -500.0), 500.0)))


def _ratio_of(a: Sequence[Run], b: Sequence[Run], q: float, method: str, times: Sequence[float]) -> Interval:
    one, two = (_logs([_quantile(run, q) for run in arm]) for arm in (a, b))
    return _ratio(stats.estimate(one, two, method, times)[0])


def _quantile(run: Run, q: float) -> float:
    """Of the time per unit, over units of work."""
    order = np.argsort(run.row_ns, kind="stable")
    reached = np.cumsum(run.row_weights[order])
    return float(run.row_ns[order][int(np.searchsorted(reached, q * reached[-1]))])


# ---- the verdict ----


def _judge(
    x: stats.Estimate, margin: float, permutation: float | None, few: bool, refusals: list[str], runs: int
) -> tuple[str, str]:
    if refusals:
        return UNDECIDED, refusals[0]
    if few or x.low is None or x.high is None:
        return UNDECIDED, f"{runs} run{'s' * (runs != 1)} a side; a verdict needs at least {LEAST_RUNS}"
    bound = math.log1p(margin)
    if stats.is_within(x, -bound, bound):  # a true difference that does not matter is not worth another word
        return EQUIVALENT, ""
    if x.low <= 0 <= x.high:
        return UNDECIDED, ""
    if permutation is not None and permutation > 2 * stats.ALPHA:
        return UNDECIDED, f"relabelling the runs gives as large a difference in {permutation:.0%} of cases"
    return (FASTER if x.high < 0 else SLOWER), ""


def _spread_of_pairs(x: stats.Estimate, a: Sequence[Run], b: Sequence[Run]) -> float | None:
    """Standard deviation of the difference within a pair; from single runs, what their iterations alone would make of it."""
    if x.se is not None:
        return x.se * math.sqrt(min(len(a), len(b)))
    errors = []
    for run in (a[0], b[0]):
        rows = np.log(run.row_ns)
        if len(rows) < 2:
            return None
        errors.append(float(rows.var(ddof=1)) / len(rows))
    return math.sqrt(sum(errors))


# ---- where the difference is ----


def _attribute(a: Sequence[Run], b: Sequence[Run], method: str, margin: float) -> tuple[int, Component, tuple[Component, ...]]:
    """The mean run of each arm, at the work of A's, label by label."""
    work = max(1, round(sum(run.work for run in a) / len(a)))
    names = _shown(a, b)
    one, two = ([_scale(run, work, names) for run in arm] for arm in (a, b))
    means = [_mean(arm) for arm in (one, two)]
    left, right = (np.array([[sum(row), *row] for row in arm], np.float64) for arm in (one, two))
    if method == stats.ADJUSTED:  # the raw means are not what the ratio was estimated from: described only
        found = tuple(stats.Estimate(0.0) for _ in range(len(names) + 1))
    else:
        found = stats.estimate(left, right, method)
    known = [x.p for x in found[1:] if x.p is not None]
    corrected: list[float | None] = [*correct_by_holm(known)] if len(known) == len(names) else [None] * len(names)
    bound = margin * sum(means[0])
    few = min(len(a), len(b)) < LEAST_RUNS

    def verdict(x: stats.Estimate, p: float | None) -> str:
        return UNDECIDED if few else _judge_part(x, p, bound)

    total = Component(
        "total", sum(means[0]), sum(means[1]), found[0].low, found[0].high, found[0].p, verdict(found[0], found[0].p)
    )
    parts = [
        Component(name, means[0][i], means[1][i], x.low, x.high, p, verdict(x, p))
        for i, (name, x, p) in enumerate(zip(names, found[1:], corrected, strict=True))
    ]
    return work, total, tuple(sorted(parts, key=lambda c: (-abs(c.delta_ns), c.name)))


def _shown(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """The labels that are looked at one by one, and what the rest is called."""
    present = sorted({name for run in (*a, *b) for name in run.components})
    whole = [sum(run.total_ns for run in arm) for arm in (a, b)]
    held = {n: [sum(run.components.get(n, 0) for run in arm) for arm in (a, b)] for n in present}
    large = [
        name
        for name in present
        if name in (UNTRACKED, OWN) or any(ns >= SMALL_SHARE * all_ns for ns, all_ns in zip(held[name], whole, strict=True))
    ]
    return [*large, *([OTHERS] if len(large) < len(present) else [])]


def _scale(run: Run, work: int, names: Sequence[str]) -> list[int]:
    """A run's components at another amount of work, in whole nanoseconds that add up to its total there."""
    own = {name: run.components.get(name, 0) for name in names}
    if OTHERS in own:
        own[OTHERS] = run.total_ns - sum(own.values())
    return split_exactly(run.total_ns * work // run.work, [own[name] for name in names])


def _mean(rows: Sequence[Sequence[int]]) -> list[int]:
    sums = [sum(column) for column in zip(*rows, strict=True)]
    return split_exactly(sum(sums) // len(rows), sums)


def _judge_part(x: stats.Estimate, p: float | None, bound: float) -> str:
    if p is not None and p <= stats.ALPHA:
        return FASTER if x.mid < 0 else SLOWER
    return EQUIVALENT if stats.is_within(x, -bound, bound) else UNDECIDED


def _compare_returns(a: Sequence[Run], b: Sequence[Run], method: str, times: Sequence[float]) -> Returned | None:
    values = [[run.returned for run in arm if run.returned is not None] for arm in (a, b)]
    if len(values[0]) != len(a) or len(values[1]) != len(b):
        return None
    (x,) = stats.estimate(np.array(values[0]), np.array(values[1]), method, times)
    few = min(len(a), len(b)) < LEAST_RUNS
    clear = not few and x.p is not None and x.p <= stats.ALPHA
    verdict = ("better" if x.mid > 0 else "worse") if clear else UNDECIDED
    means = [float(np.mean(v)) for v in values]
    return Returned(means[0], means[1], Interval(x.mid, x.low, x.high), verdict)
