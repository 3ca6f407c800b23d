"""What speaks against believing a comparison: work, machine, losses, drift, order.

What lives here: runs in, sentences out. Some refuse a verdict (`REASONS`, which a person may overrule one by one); the others
are notes beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from . import stats
from .runs import Floats, Run, units_text

DROPPED, WORK, WORK_REFUSED, DRIFT, LATE = 0.001, 0.01, 0.25, 0.05, 0.005  # shares
REASONS = ("work", "machine", "dropped", "loop")  # what a comparison is refused for, and may be made despite


@dataclass(frozen=True, slots=True)
class Quality:
    dropped_share: float  # the largest of any run
    drift: float  # from the first run to the last, as a share
    warm_up: int  # iterations left out of every run
    unsettled: int  # runs without a steady state
    profiler: stats.Interval  # share of the time: mean, and one standard deviation each way
    notes: tuple[str, ...]  # what a reader should know before believing the numbers


def find_refusals(a: Sequence[Run], b: Sequence[Run]) -> list[tuple[str, str]]:
    """Why there should be no verdict: the reason's name, and a sentence."""
    out = []
    works = [sum(run.all_work for run in arm) / len(arm) for arm in (a, b)]
    if abs(works[1] / works[0] - 1) > WORK_REFUSED:
        did = f"A did {works[0]:,.0f} {units_text(a[0].unit)} a run and B {works[1]:,.0f}"
        out.append(("work", f"{did}: not the same work; compare at equal work"))
    for key, what in (("cpu", "processor"), ("usable_cores", "number of cores"), ("machine", "architecture")):
        seen = _host_values((*a, *b), key)
        if len(seen) > 1:
            out.append(
                ("machine", f"the runs come from different machines ({what}: {' and '.join(seen[:3])}); run both on one")
            )
            break
    dropped = max(run.dropped_share for run in (*a, *b))
    if dropped > DROPPED:
        out.append(("dropped", f"{dropped:.1%} of the spans of a run were dropped: its components are not the whole"))
    doubted = [run for run in (*a, *b) if run.doubt]
    if doubted:
        more = f" ({len(doubted)} runs in all)" if len(doubted) > 1 else ""
        out.append(("loop", f"{doubted[0].doubt}{more}; `hotloop report {doubted[0].name}` shows where its time went"))
    return out


def judge_quality(a: Sequence[Run], b: Sequence[Run], per_unit: tuple[Floats, Floats]) -> Quality:
    runs = (*a, *b)
    order = rankdata([run.start_s for run in runs], "min")
    drift, p = stats.find_drift(np.concatenate(per_unit), [0] * len(a) + [1] * len(b), order)
    notes = [text for _, text in find_refusals(a, b)]
    works = [sum(run.all_work for run in arm) / len(arm) for arm in (a, b)]
    if WORK < abs(works[1] / works[0] - 1) <= WORK_REFUSED:
        notes.append(f"different amounts of work: {works[0]:,.0f} and {works[1]:,.0f} {a[0].unit} a run")
    if abs(drift) > DRIFT and p < stats.ALPHA:
        notes.append(f"the machine drifted by {stats.as_change(drift):+.1%} over the runs")
    if len(a) > 1 and (a[-1].start_s < b[0].start_s or b[-1].start_s < a[0].start_s):
        notes.append("one side ran before the other: drift is allowed for, at the price of a wide interval; use hotloop ab")
    slow = max(run.warm_up.iterations for run in runs)
    if slow and not any(run.left_out for run in runs):
        notes.append(f"up to {slow} iterations at the start of a run were slower (warm-up); they are part of what is compared")
    if a[0].unit == "episodes":
        notes.append("an episode is not a constant unit of work: as the agent learns, episodes get longer or shorter")
    late = [sum(run.late_share for run in arm) / len(arm) for arm in (a, b)]
    if abs(late[1] - late[0]) > LATE:
        notes.append(
            f"recording their waits may have slowed A by up to {late[0]:.1%} and B by up to {late[1]:.1%}: "
            "the interval allows for the difference"
        )
    for key, what in (("python", "Python"), ("release", "kernel")):
        seen = _host_values(runs, key)
        if len(seen) > 1:
            notes.append(f"different configuration: {what} {' and '.join(seen[:3])}")
    profiler = np.array([run.profiler_share for run in runs])
    spread = float(profiler.std(ddof=1)) if len(runs) > 1 else 0.0
    mean = float(profiler.mean())
    return Quality(
        dropped_share=max(run.dropped_share for run in runs), drift=stats.as_change(drift),
        warm_up=max(run.left_out for run in runs), unsettled=sum(not run.warm_up.settled for run in runs),
        profiler=stats.Interval(mean, max(0.0, mean - spread), mean + spread), notes=tuple(notes),
    )  # fmt: skip


def _host_values(runs: Sequence[Run], key: str) -> list[str]:
    return sorted({str(run.host.get(key)) for run in runs if run.host.get(key) is not None})
