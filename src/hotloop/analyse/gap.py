"""Why the long run is out of proportion: the difference of two runs, split exactly.

What lives here: two runs' counts and times in, `Gap` out. For each component
    time = episodes × steps/episode × calls/step × seconds/call
and the difference of the times is divided among the four by logarithmic-mean weights (LMDI): no remainder, no order of the
factors, and the parts add up to the difference in whole nanoseconds. Time without calls (untracked) has seconds/step instead,
and what lies outside the loop (imports, set-up) is a fixed cost.

What a person expected is the time in proportion to the episodes; the gap is what the other factors make of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import UsageError
from .diagnosis import Diagnosis
from .runs import ITERATIONS, measure_iterations, missing_work, units_text, whole_run

EPISODES, STEPS, CALLS, COST = "episodes", "steps per episode", "calls per step", "seconds per call"
OUTSIDE = "(outside the loop)"
WORK = "steps"  # in place of the first two, where episodes are not counted
SAME_RATIO = math.log(1.02)  # labels whose calls grow alike, as a loop's parts do, are one cause


@dataclass(frozen=True, slots=True)
class Side:
    """One run as factors."""

    name: str
    total_ns: int
    components: dict[str, int]
    calls: dict[str, int]
    episodes: int  # 0: not counted
    steps: int
    step_unit: str


@dataclass(frozen=True, slots=True)
class Part:
    """A component's difference, factor by factor."""

    name: str
    small_ns: int
    large_ns: int
    by_factor: dict[str, int]  # adds up to the difference
    ratios: dict[str, float]  # of each factor, large over small; empty where the component is in one run only


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for the gap: of one factor, in one component or in several that grow alike."""

    factor: str
    components: tuple[str, ...]  # empty: all
    ratio: float  # of the factor; infinite where the component is new
    ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    small: Side
    large: Side
    parts: tuple[Part, ...]  # largest difference first
    by_factor: dict[str, int]  # of the total difference
    factors: dict[str, float]  # whose product is the ratio of the totals
    causes: tuple[Cause, ...]  # in the loop, without what was expected, largest first

    @property
    def ratio(self) -> float:
        return self.large.total_ns / self.small.total_ns

    @property
    def outside(self) -> Part | None:
        """Start-up and shut-down, if they can be told from the loop."""
        return next((part for part in self.parts if part.name == OUTSIDE), None)

    @property
    def expected_ratio(self) -> float:
        """In proportion to the episodes, or to the steps where those are not counted."""
        if self.small.episodes and self.large.episodes:
            return self.large.episodes / self.small.episodes
        return self.large.steps / self.small.steps


def read_side(diagnosis: Diagnosis) -> Side:
    """A session as factors. What happens before the loop and after it does not grow with it: a component of its own."""
    total, components = whole_run(diagnosis)
    loop = measure_iterations(diagnosis)
    if loop is not None and loop[0] <= total:
        components, calls = {**loop[1], OUTSIDE: total - loop[0]}, loop[2]
    else:
        calls = {}
        for operation in diagnosis.operations:
            calls[operation.name] = calls.get(operation.name, 0) + operation.calls
    for unit in ("env_steps", "updates"):
        steps = diagnosis.counters.get(unit, 0)
        if steps > 0:
            break
    else:
        unit, steps = ITERATIONS, diagnosis.iterations_closed
    if not steps or not total:
        raise missing_work(diagnosis.name)
    return Side(diagnosis.name, total, components, calls, max(0, diagnosis.counters.get("episodes", 0)), steps, unit)


def explain_gap(small: Side, large: Side) -> Gap:
    """Split the difference between two runs of one program."""
    if small.step_unit != large.step_unit:
        a, b = (units_text(side.step_unit) for side in (small, large))
        raise UsageError(f"{small.name} counts {a} and {large.name} {b}; both must count the same")
    factors = _common_factors(small, large)
    names = sorted({*small.components, *large.components})
    parts = sorted((_split(name, small, large, factors) for name in names), key=lambda p: -abs(p.large_ns - p.small_ns))
    by_factor = {factor: sum(part.by_factor.get(factor, 0) for part in parts) for factor in (*factors, CALLS, COST)}
    difference = large.total_ns - small.total_ns
    weight = log_mean(large.total_ns, small.total_ns)
    products = {factor: math.exp(ns / weight) for factor, ns in by_factor.items()}
    assert sum(by_factor.values()) == difference
    expected = EPISODES if EPISODES in factors else WORK
    return Gap(small, large, tuple(parts), by_factor, products, _rank(parts, by_factor, factors, expected))


def _common_factors(small: Side, large: Side) -> dict[str, float]:
    """The logarithms of what all components share."""
    if small.episodes and large.episodes:
        per_episode = (large.steps / large.episodes) / (small.steps / small.episodes)
        return {EPISODES: math.log(large.episodes / small.episodes), STEPS: math.log(per_episode)}
    return {WORK: math.log(large.steps / small.steps)}


def log_mean(a: float, b: float) -> float:
    """(a - b) / (ln a - ln b), the weight that leaves no remainder.

    >>> round(log_mean(2.0, 1.0), 4), log_mean(3.0, 3.0), log_mean(0.0, 1.0)
    (1.4427, 3.0, 0.0)
    """
    if a <= 0 or b <= 0:
        return 0.0
    return a if a == b else (a - b) / (math.log(a) - math.log(b))


def _split(name: str, small: Side, large: Side, factors: Mapping[str, float]) -> Part:
    before, after = small.components.get(name, 0), large.components.get(name, 0)
    if not before or not after:  # the limit of the weights: what is in one run only is all calls
        return Part(name, before, after, {CALLS: after - before}, {})
    if name == OUTSIDE:
        return Part(name, before, after, {COST: after - before}, {COST: after / before, CALLS: 1.0})
    logs = dict(factors)
    calls = [side.calls.get(name, 0) for side in (small, large)]
    per_step = math.log((calls[1] / large.steps) / (calls[0] / small.steps)) if all(calls) else 0.0
    logs[CALLS] = per_step
    logs[COST] = math.log(after / before) - sum(logs.values())
    weight = log_mean(after, before)
    amounts = _round_exactly([weight * value for value in logs.values()], after - before)
    return Part(name, before, after, dict(zip(logs, amounts, strict=True)), {key: math.exp(v) for key, v in logs.items()})


def _round_exactly(values: Sequence[float], total: int) -> list[int]:
    """Whole numbers next to the values that add up to the total: the last bits go where most was cut off."""
    floors = [math.floor(value) for value in values]
    order = sorted(range(len(values)), key=lambda i: floors[i] - values[i])
    missing = total - sum(floors)
    for k in range(abs(missing)):
        floors[order[k % len(order)]] += 1 if missing > 0 else -1
    return floors


def _rank(
    parts: Sequence[Part], by_factor: Mapping[str, int], factors: Mapping[str, float], expected: str
) -> tuple[Cause, ...]:
    causes = [Cause(f, (), math.exp(factors[f]), by_factor[f]) for f in factors if f != expected]
    groups: list[tuple[float, list[Part]]] = []
    for part in parts:
        if part.name == OUTSIDE:  # start-up is reported apart: it is no reason for a loop to be slow
            continue
        ratio = part.ratios.get(CALLS, math.inf if part.large_ns else 0.0)
        near = next((g for g in groups if _alike(g[0], ratio)), None)
        if near is None:
            groups.append((ratio, [part]))
        else:
            near[1].append(part)
        if part.by_factor.get(COST):
            causes.append(Cause(COST, (part.name,), part.ratios[COST], part.by_factor[COST]))
    for ratio, members in groups:
        names = tuple(part.name for part in members)
        causes.append(Cause(CALLS, names, ratio, sum(part.by_factor.get(CALLS, 0) for part in members)))
    return tuple(sorted((c for c in causes if c.ns), key=lambda c: -c.ns))


def _alike(a: float, b: float) -> bool:
    if not (0 < a < math.inf and 0 < b < math.inf):
        return a == b
    return abs(math.log(a / b)) <= SAME_RATIO
