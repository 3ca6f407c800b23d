"""False alarms, coverage and detection of the comparison on runs whose truth is known, all through `compare_runs`."""

from __future__ import annotations

import itertools
import math

import numpy as np
from benchmarks.measure import Table
from benchmarks.statistics.noise import NOISES, make_runs, normal

from hotloop.analyse.changes import WarmUp
from hotloop.analyse.compare import Comparison, compare_runs
from hotloop.analyse.runs import Run

ALARMS = (0.03, 0.07)
COVERAGE = (0.93, 0.97)


def between(table: Table, what: str, value: float, bars: tuple[float, float], note: str = "") -> None:
    """A row with a bar on each side."""
    table.add(what, value, bars[1], "", note=f"and ≥ {bars[0]:g} {note}" + ("" if value >= bars[0] else ": MISSED"))
    if value < bars[0]:
        table.rows[-1]["ok"] = False


def is_alarm(c: Comparison) -> bool:
    return c.p is not None and c.p < 0.05


def adds_up(c: Comparison) -> bool:
    return sum(part.delta_ns for part in c.components) == c.total.delta_ns


def calibrate(table: Table, count: int) -> None:
    """A against A: how often the interval leaves out 1, and how often a word is said that is not true."""
    rng = np.random.default_rng(1)
    noises = itertools.cycle(NOISES.values())
    found = [compare_runs(*make_runs(rng, next(noises))) for _ in range(count)]
    words = sum(c.verdict in ("faster", "slower") for c in found) / count
    parts = sum(any(p.verdict in ("faster", "slower") for p in c.components) for c in found) / count
    note = f"{count} comparisons; said faster or slower {words:.1%}; any component {parts:.1%}"
    between(table, "A/A: false positives (interval without 1)", float(np.mean([is_alarm(c) for c in found])), ALARMS, note)
    table.add("A/A: component differences that do not sum exactly", sum(not adds_up(c) for c in found), 0, "")


def cover(table: Table, count: int) -> None:
    """B takes 1.1 times as long: is that in the interval?"""
    rng = np.random.default_rng(2)
    for name, noise in NOISES.items():
        found = [compare_runs(*make_runs(rng, noise, whole=1.1)) for _ in range(count)]
        inside = np.mean([c.ratio.low <= 1.1 <= c.ratio.high for c in found])  # type: ignore[operator]
        between(table, f"coverage of 95 % intervals: {name}", float(inside), COVERAGE, f"({count} comparisons)")


def detect(table: Table, count: int) -> None:
    """10 % in one component, 10 pairs whose differences spread by 2 %."""
    rng = np.random.default_rng(3)
    broken = 0
    for name, share in (("env_step", 0.4), ("backward", 0.25)):
        found = [compare_runs(*make_runs(rng, normal, slower={name: 1.1})) for _ in range(count)]
        seen = np.mean([c.components[0].name == name and c.components[0].verdict == "slower" for c in found])
        total = np.mean([c.ratio.low > 1 for c in found])  # type: ignore[operator]
        broken += sum(not adds_up(c) for c in found)
        note = f"({count}; the total alone shows it in {total:.1%})"
        table.add(f"10 % slower {name} ({share:.0%} of the time): named", float(seen), 0.95, "", above=True, note=note)
    table.add("10 % slower: component differences that do not sum exactly", broken, 0, "")


def claim(table: Table, count: int) -> None:
    """Seed 001: 5.48 s against 5.41 s, one run of 5 batches a side, "small variations (±5 %) are normal"."""
    rng = np.random.default_rng(4)
    undecided, needed = 0, []
    for _ in range(count):
        sides = []
        for i, seconds in enumerate((5.48, 5.41)):
            batches = np.exp(rng.normal(0, 0.05, 5))
            batches *= seconds * 1e9 / batches.sum()
            parts = {"data_collection": int(0.69 * seconds * 1e9), "training_loop": int(0.31 * seconds * 1e9)}
            run = Run(
                name="", start_s=float(i), unit="iterations", work=5, all_work=5, total_ns=sum(parts.values()),
                components=parts, row_ns=batches, row_weights=np.ones(5), warm_up=WarmUp(0, 0.0, True, ""),
                dropped_share=0.0, profiler_share=0.0, host={}, script="",
            )  # fmt: skip
            sides.append([run])
        c = compare_runs(*sides, margin=0.012)
        undecided += c.verdict == "undecided"
        needed.append(c.needed_pairs or 0)
    note = f"({count} replays; ±1.2 % needs at least {int(np.median(needed))} pairs, by the batches alone)"
    table.add("seed 001: +1.2 % from 5 batches a side, 'undecided'", undecided / count, 1.0, "", above=True, note=note)
    runs = [
        compare_runs(*make_runs(rng, lambda r, n: r.normal(0, 0.05, n), pairs=5, whole=5.41 / 5.48), margin=0.012)
        for _ in range(count)
    ]
    share = np.mean([c.verdict == "undecided" for c in runs])
    many = int(np.median([c.needed_pairs or 0 for c in runs]))
    exact = math.ceil((2.8 * 0.05 * math.sqrt(2) / math.log(1.012)) ** 2)
    note = f"(5 % noise a run; says {many} pairs, known noise needs {exact})"
    table.add("seed 001: the same from 5 runs a side, 'undecided'", float(share), 0.9, "", above=True, note=note)
