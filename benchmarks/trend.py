"""Trends, change points and warm-up on series whose truth is known: false alarms, what is found, how far off.

    python benchmarks/trend.py [--quick] [--json FILE]

Noise is AR(1) with coefficient φ, n iterations long. A planted growth has a bar where it is at least 7 standard errors of the
best estimate that knows the noise (whose detection rate is given beside ours): a test must learn the noise from the same few
iterations. --quick draws a tenth of the series; then single cells are shown without a bar.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import Table
from hotloop.analyse.changes import find_changes, find_warm_up
from hotloop.analyse.trend import Trend, find_trend, find_trends

Floats = NDArray[np.float64]
QUICK = "--quick" in sys.argv
SERIES = 100 if QUICK else 1000
LENGTHS = (60, 200, 1000)
PHIS = (0.0, 0.5, 0.8, 0.9)
NOISES = ("normal", "lognormal", "student t")
ALARMS = 0.07
FOUND = 0.95
CLEAR = 7.0


def make_noise(rng: np.random.Generator, phi: float, n: int, heavy: bool = False) -> Floats:
    """AR(1) of unit variance, one series per row; with `heavy`, Student t innovations with 3 degrees of freedom."""
    shape = (SERIES, n + 100)
    push = rng.standard_t(3, shape) / np.sqrt(3) if heavy else rng.standard_normal(shape)
    push *= np.sqrt(1 - phi**2)
    for i in range(1, shape[1]):
        push[:, i] += phi * push[:, i - 1]
    return push[:, 100:]


def make_series(rng: np.random.Generator, noise: str, phi: float, n: int, cv: float) -> Floats:
    """Times with mean 1 and coefficient of variation `cv`."""
    unit = make_noise(rng, phi, n, heavy=noise == "student t")
    if noise == "lognormal":
        return np.exp(np.sqrt(np.log1p(cv**2)) * unit)
    return np.maximum(1 + cv * unit, 0.02)


def share(trends: list[Trend], test: Callable[[Trend], bool]) -> float:
    return sum(map(test, trends)) / len(trends)


def alarmed(trend: Trend) -> bool:
    return trend.verdict in ("grows", "falls")


def count_standard_errors(phi: float, n: int, cv: float) -> float:
    """How many standard errors a growth of 2 × is, for generalised least squares that knows the noise."""
    line = np.stack((np.ones(n), np.linspace(0, 1, n)), 1)
    first = line[:1] * np.sqrt(1 - phi**2)
    white = np.concatenate((first, line[1:] - phi * line[:-1])) / np.sqrt(1 - phi**2)
    return float(np.log(2) / (cv * np.sqrt(np.linalg.inv(white.T @ white)[1, 1])))


def bar(value: float) -> float | None:
    return None if QUICK else value


def false_alarms(table: Table) -> None:
    rng = np.random.default_rng(1)
    everything: list[Trend] = []
    for n, phi in product(LENGTHS, PHIS):
        worst, notes, levels = 0.0, [], []
        for noise in NOISES:
            trends = [find_trend(v) for v in make_series(rng, noise, phi, n, 1.0 if noise == "lognormal" else 0.3)]
            alarms = share(trends, alarmed)
            worst = max(worst, alarms)
            notes.append(f"{alarms:.1%}")
            levels.append(f"{share(trends, lambda t: t.p_value < 0.05):.1%}")
            everything += trends
        note = f"{' / '.join(notes)}; the test alone {' / '.join(levels)}"
        table.add(f"false alarms, n={n} φ={phi}, worst noise", worst, bar(ALARMS), "", note=note)
    table.add("false alarms, all", share(everything, alarmed), ALARMS, "", note=f"{' / '.join(NOISES)}")
    table.add("the test alone: p < 0.05 in noise, all", share(everything, lambda t: t.p_value < 0.05), 0.05, "")


def other_noise(table: Table) -> None:
    """What AR(1) is not: changing spread, merged rows, jitter over slow noise, memory as long as the run."""
    rng = np.random.default_rng(2)
    for n in LENGTHS:
        spread = np.linspace(0.05, 0.4, n)
        trends = [find_trend(np.exp(v * spread - spread**2 / 2)) for v in make_noise(rng, 0.5, n)]
        table.add(f"false alarms, spread grows 8 ×, n={n} φ=0.5", share(trends, alarmed), bar(ALARMS), "")
    trends = [find_trend(*merge_like_the_recorder(v)) for v in make_series(rng, "lognormal", 0.5, 6000, 1.0)[:300]]
    table.add("false alarms, 6000 iterations in merged rows, φ=0.5", share(trends, alarmed), bar(ALARMS), "")
    for n in LENGTHS:
        slow, jitter = make_noise(rng, 0.95, n), make_noise(rng, 0, n)
        trends = [find_trend(np.exp(0.15 * v + 0.26 * w)) for v, w in zip(slow, jitter, strict=True)]
        table.add(
            f"false alarms, jitter over slow noise (φ=0.95), n={n}", share(trends, alarmed), None, "", note="a known weakness"
        )
    labels = make_noise(rng, 0.5, 200).reshape(-1, 20, 200)
    found = [any(map(alarmed, find_trends(dict(enumerate(np.exp(0.3 * v)))).values())) for v in labels]  # type: ignore[arg-type]
    table.add("20 labels of noise: sessions with any alarm (Holm)", sum(found) / len(found), None if QUICK else 0.1, "")


def merge_like_the_recorder(values: Floats, room: int = 1000) -> tuple[Floats, Floats]:
    """When `room` rows are full, neighbours are merged pairwise."""
    means: list[float] = []
    weights: list[float] = []
    for value in values:
        if len(means) == room:
            both = [weights[i] + weights[i + 1] for i in range(0, room, 2)]
            means = [(means[i] * weights[i] + means[i + 1] * weights[i + 1]) / both[i // 2] for i in range(0, room, 2)]
            weights = both
        means.append(float(value))
        weights.append(1.0)
    return np.array(means), np.array(weights)


def detection(table: Table) -> None:
    from scipy.special import ndtr

    rng = np.random.default_rng(3)
    hardest, longest, covered = 1.0, 1.0, []
    for n, phi, cv in product(LENGTHS, PHIS, (0.1, 0.2, 0.3)):
        trends = [find_trend(v * np.linspace(1, 2, n)) for v in make_series(rng, "normal", phi, n, cv)]
        found = share(trends, lambda t: t.verdict == "grows")
        covered += [t.growth_low <= 2 <= t.growth_high for t in trends]
        errors = count_standard_errors(phi, n, cv)
        clear = errors >= CLEAR
        hardest = min(hardest, found) if clear else hardest
        longest = min(longest, found) if n == LENGTHS[-1] else longest
        note = f"{errors:.1f} standard errors, noise known {ndtr(errors - 1.96):.1%}"
        table.add(
            f"2 × growth found, n={n} φ={phi} CV={cv:.0%}", found, bar(FOUND) if clear else None, "", above=True, note=note
        )
    table.add(f"2 × growth found, {CLEAR:g} standard errors or more, hardest", hardest, bar(FOUND), "", above=True)
    table.add(f"2 × growth found, n={LENGTHS[-1]}, hardest φ and CV", longest, bar(FOUND), "", above=True)
    table.add("the interval holds the true growth, all", float(np.mean(covered)), 0.93, "", above=True)


def steps(table: Table) -> None:
    rng = np.random.default_rng(4)
    for n, phi in product(LENGTHS, (0.0, 0.9)):
        values = make_series(rng, "normal", phi, n, 0.1)
        values[:, int(0.45 * n) :] *= 2
        told = share([find_trend(v) for v in values], lambda t: t.verdict == "flat" and "step" in t.reason)
        table.add(f"2 × step told from a trend, n={n} φ={phi} CV=10%", told, bar(0.9), "", above=True)


def changes(table: Table) -> None:
    rng = np.random.default_rng(5)
    count = max(40, SERIES // 10)
    false, warm, unsettled = [], [], []
    for n, phi, noise in product(LENGTHS, PHIS, NOISES):
        values = make_series(rng, noise, phi, n, 1.0 if noise == "lognormal" else 0.3)[:count]
        false.append(np.mean([bool(find_changes(v)) for v in values]))
        found = [find_warm_up(v) for v in values]
        warm.append(np.mean([w.iterations > 0 for w in found]))
        unsettled.append(np.mean([not w.settled for w in found]))
    for what, rates in (("change points", false), ("warm-ups", warm), ("'no steady state'", unsettled)):
        table.add(f"false {what}, all noises", float(np.mean(rates)), ALARMS, "", note=f"worst cell {max(rates):.1%}")
    for n, phi in product(LENGTHS, (0.0, 0.5, 0.8)):
        at, length = int(0.4 * n), n // 10
        values = make_series(rng, "lognormal", phi, n, 0.2)[:count]
        values[:, at:] *= 2
        errors = [min((abs(c.row - at) for c in find_changes(v)), default=n) for v in values]
        seen = float(np.mean([e < n for e in errors]))
        table.add(
            f"2 × jump: rows off, 9 in 10, n={n} φ={phi}", float(np.quantile(errors, 0.9)), None, "", note=f"found {seen:.1%}"
        )
        values = make_series(rng, "lognormal", phi, n, 0.2)[:count]
        values[:, :length] *= 3
        right = np.mean([abs(find_warm_up(v).iterations - length) <= max(2, n // 100) for v in values])
        table.add(f"warm-up of 3 ×, a tenth of the run: right, n={n} φ={phi}", float(right), None, "", above=True)
    values = np.exp(0.1 * make_noise(rng, 0.0, 100))
    values[:, :2] *= 10
    right = np.mean([find_warm_up(v).iterations == 2 for v in values])
    table.add("two slow first iterations: exactly these", float(right), FOUND, "", above=True)


def speed(table: Table) -> None:
    rng = np.random.default_rng(6)
    noise = np.exp(0.3 * rng.standard_normal((9, 4000)))
    hard = noise * np.linspace(1, 10, 4000)  # growth: the dearest series to cut into levels
    for what, function, values, limit in (
        ("find_changes", find_changes, noise, 200),
        ("find_changes, growing", find_changes, hard, 200),
        ("find_warm_up, growing", find_warm_up, hard, 200),
        ("find_trend", find_trend, noise, 20),
    ):
        times = []
        for v in values:
            begin = time.perf_counter()
            function(v)
            times.append((time.perf_counter() - begin) * 1e3)
        table.add(f"{what}, 4000 rows", float(np.median(times)), limit, "ms")


def main() -> int:
    table = Table(f"trends, change points and warm-up: {SERIES} series per cell")
    for part in (false_alarms, other_noise, detection, steps, changes, speed):
        part(table)
    return table.show()


if __name__ == "__main__":
    sys.exit(main())
