"""What an investigation found: every hypothesis beside its expectation, the goals, and what to do first.

What lives here: comparisons in, judgements out. Invariant: a judgement is made on the interval, never on the middle; what the
interval does not decide is "open".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import stats
from .compare import EQUIVALENT, FASTER, LEAST_RUNS, SLOWER, Comparison
from .runs import Run
from .stats import Interval

MET, MISSED, OPEN = "met", "missed", "open"


@dataclass(frozen=True, slots=True)
class Hypothesis:
    name: str
    command: str
    expected: tuple[float, float] | None = None  # speed-up
    confidence: str = ""
    note: str = ""
    is_option: bool = True  # False: a limit to know, in no goal and no action


@dataclass(frozen=True, slots=True)
class Result:
    hypothesis: Hypothesis
    comparison: Comparison | None  # None: it could not be measured
    problem: str
    against: str  # the measured gain against the expected one


@dataclass(frozen=True, slots=True)
class Goal:
    name: str
    wanted: str
    status: str
    best: str  # the variant that comes closest, and how close


@dataclass(frozen=True, slots=True)
class Investigation:
    name: str
    unit: str
    rounds: int
    margin: float
    baseline: str  # its command
    baseline_rate: Interval | None  # units of work a second
    results: tuple[Result, ...]
    goals: tuple[Goal, ...]

    @property
    def actions(self) -> tuple[Result, ...]:
        """What helps, the most first."""
        measured = [r for r in self.results if r.comparison is not None and r.hypothesis.is_option]
        found = [r for r in measured if r.comparison is not None and r.comparison.verdict == FASTER]
        return tuple(sorted(found, key=lambda r: -(r.comparison.speedup.mid if r.comparison else 0.0)))


def judge_expectation(expected: tuple[float, float] | None, comparison: Comparison | None) -> str:
    """Is the measured speed-up what was hoped for?"""
    if expected is None or comparison is None:
        return ""
    low, high = comparison.speedup.low, comparison.speedup.high
    if comparison.refused or low is None or high is None or comparison.pairs < LEAST_RUNS:
        return OPEN
    if high < expected[0]:
        return {SLOWER: "slower instead", EQUIVALENT: "no effect"}.get(comparison.verdict, "less than expected")
    if low > expected[1]:
        return "more than expected"
    # "Less than 1.1x" is confirmed by an interval that stays below, "2-3x" by one that touches it and shows a gain.
    confirmed = high <= expected[1] if expected[0] <= 1 else comparison.verdict == FASTER
    return "as expected" if confirmed else OPEN


def make_investigation(
    name: str,
    baseline: str,
    results: Sequence[tuple[Hypothesis, Comparison | None, str]],
    goals: Mapping[str, float | None],
    rounds: int,
    margin: float,
) -> Investigation:
    """`goals`: minimum and stretch as speed-ups; within, times expected_per_second."""
    judged = tuple(Result(h, c, problem, judge_expectation(h.expected, c)) for h, c, problem in results)
    measured = [r for r in judged if r.comparison is not None]
    first = measured[0].comparison if measured else None
    return Investigation(
        name=name, unit=first.unit if first else "", rounds=rounds, margin=margin, baseline=baseline,
        baseline_rate=find_rate(first.a) if first else None, results=judged,
        goals=_judge_goals([r for r in measured if r.hypothesis.is_option], goals),
    )  # fmt: skip


def find_rate(runs: Sequence[Run]) -> Interval:
    """Units of work a second, over runs."""
    logs = np.log([1e9 / run.ns_per_unit for run in runs])
    (x,) = stats.estimate(np.zeros(len(logs)), logs, stats.PAIRED)
    return Interval(x.mid, x.low, x.high).map(math.exp)


def _judge_goals(measured: Sequence[Result], goals: Mapping[str, float | None]) -> tuple[Goal, ...]:
    ranked = sorted(measured, key=lambda r: -(r.comparison.speedup.mid if r.comparison else 0.0))
    best = ranked[0] if ranked else None
    out = []
    for key in ("minimum", "stretch"):
        wanted = goals.get(key)
        if wanted is None:
            continue
        speedup = best.comparison.speedup if best and best.comparison else None
        said = f"{best.hypothesis.name}: {speedup.mid:.2f}x" if best and speedup else "nothing was measured"
        out.append(Goal(key, f"{wanted:g}x faster", _judge_at_least(speedup, wanted), said))
    within, expected = goals.get("within"), goals.get("expected_per_second")
    if within is not None and expected is not None:
        rate = find_rate(best.comparison.b) if best and best.comparison else None
        said = (
            f"{best.hypothesis.name}: {expected / rate.mid:.2f}x the expected time" if best and rate else "nothing was measured"
        )
        out.append(
            Goal("within", f"within {within:g}x of {expected:,.0f} a second", _judge_at_least(rate, expected / within), said)
        )
    return tuple(out)


def _judge_at_least(x: Interval | None, wanted: float) -> str:
    if x is None or x.low is None or x.high is None:
        return OPEN
    return MET if x.low >= wanted else MISSED if x.high < wanted else OPEN
