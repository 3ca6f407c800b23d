"""A run as one replicate: how long a unit of work took, and which label held that time.

What lives here: reports in, `Run` out. A run is the job: the work of all its processes, in the time of the learner's loop.
Invariant, in whole nanoseconds: a run's components add up to its total, and *untracked* is one of them. A component is the
innermost span's label; a known wait belongs to the span it happens in. Our own cost is none of them.

What is measured is the whole loop, as hooks see it, less our own cost: a warm-up is part of what a user waits for, and is told
beside it. In sessions recorded with start() nobody knows where the set-up ends: there the warm-up is left out, the same number
of iterations in all runs that are compared, and at least the first one. A label that first appears later is a phase, not
warm-up (`changes.find_warm_up`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..model import shard as m
from ..model.ledger import PROFILER, WAITING
from ..model.sheet import HANDED, SPAN, Sheet, sheet_of_iterations, split_exactly
from .changes import WarmUp
from .diagnosis import Diagnosis
from .iterations import whole_rows

Floats = NDArray[np.float64]

UNTRACKED, OWN = "(untracked)", "(profiler)"
ITERATIONS = "iterations"
UNITS = ("env_steps", "updates", ITERATIONS)  # in this order of preference
OUTSIDE_THE_LOOP = ("(start-up)", "(shut-down)")
LOOPS_AGREE = 0.02  # what `ab` calls no difference, by default: a larger disagreement could make a verdict of its own
LOOPS_AGREE_NS = 20_000_000  # the shortest iteration that has a row
# The most that recording a wait makes its thread late: what wakes up finds our code and data cold. 0.3 to 4.5 us each, by
# benchmarks/wait_cost.py; the calibrated cost of a span, which is taken out, is that of a warm one.
LATE_NS = 5_000
SINGULAR = {"env_steps": "env step", "updates": "update", ITERATIONS: "iteration", "samples": "sample", "episodes": "episode"}


@dataclass(frozen=True, slots=True)
class Run:
    name: str
    start_s: float
    unit: str
    work: int  # units in what is measured
    all_work: int  # units of the whole run
    total_ns: int
    components: dict[str, int]
    row_ns: Floats  # time per unit of each measured iteration, for the shape of the distribution
    row_weights: Floats  # units in each
    warm_up: WarmUp
    dropped_share: float
    profiler_share: float
    host: dict[str, Any]
    script: str
    returned: float | None = None  # what the script says it has achieved
    pair: int | None = None
    spans: dict[str, int] = field(default_factory=dict)  # nanoseconds in and below each label, and each phase
    left_out: int = 0  # iterations at its start
    doubt: str = ""  # why its loop time cannot be trusted: two ways to measure it disagree
    late_share: float = 0.0  # of the time, the most that recording the waits may have added to it

    @property
    def ns_per_unit(self) -> float:
        return self.total_ns / self.work


def choose_unit(diagnoses: Sequence[Diagnosis], wanted: str | None = None) -> str:
    """The unit of work that all runs counted: env steps, else updates, else iterations."""
    counted = [_counted(diagnosis) for diagnosis in diagnoses]
    for unit in (wanted,) if wanted else UNITS:
        if all(counts.get(unit, 0) > 0 for counts in counted):
            return unit
    lacking = next(
        diagnosis.name for diagnosis, counts in zip(diagnoses, counted, strict=True) if not counts.get(wanted or ITERATIONS)
    )
    if wanted:
        known = sorted(set.intersection(*(set(counts) for counts in counted)))
        raise UsageError(f"{lacking} did not count {wanted}; all runs counted: {', '.join(known) or 'nothing'}")
    raise missing_work(lacking)


def missing_work(name: str) -> UsageError:
    """What to tell a person whose session counted nothing that time could be divided by."""
    return UsageError(
        f"missing unit of work: {name} counted no env steps, updates or iterations; "
        'call hotloop.count("env_steps", n) or hotloop.step() in its loop'
    )


def units_text(unit: str) -> str:
    """A unit of work as a word for several; a counter of the user's own keeps its name.

    >>> units_text("env_steps"), units_text("frames")
    ('env steps', 'frames')
    """
    return f"{SINGULAR[unit]}s" if unit in SINGULAR else unit


def _counted(diagnosis: Diagnosis) -> dict[str, int]:
    return {**{k: v for k, v in diagnosis.counters.items() if v > 0}, ITERATIONS: diagnosis.iterations_closed}


def find_warm_ups(diagnoses: Sequence[Diagnosis]) -> tuple[list[WarmUp], int]:
    """The warm-up of each run, and how many iterations are left out of all: none where hooks saw the loop's two ends, else the
    longest of them, half of a run at most."""
    warm_ups, shortest = [], None
    for diagnosis in diagnoses:
        history = diagnosis.iterations
        if history is None:
            warm_ups.append(WarmUp(0, 0.0, False, "no iterations were counted"))
            continue
        warm_ups.append(history.warm_up)
        closed = diagnosis.iterations_closed
        shortest = closed if shortest is None else min(shortest, closed)
    longest = max((w.iterations for w in warm_ups), default=0)
    if all(diagnosis.phases.known for diagnosis in diagnoses) or not all(map(_counts_itself, diagnoses)):
        return warm_ups, 0
    return warm_ups, max(1, min(longest, (shortest or 2) // 2))


def _counts_itself(diagnosis: Diagnosis) -> bool:
    """Do the learner's iterations hold the work of the whole job? Those of workers cannot be told by its iterations."""
    own = diagnosis.learner.counters
    return all(own.get(unit, 0) == diagnosis.counters.get(unit, 0) for unit in UNITS[:2])


def reduce_run(
    diagnosis: Diagnosis,
    unit: str,
    warm_up: WarmUp,
    cut: int,
    returned: float | None = None,
    pair: int | None = None,
) -> Run:
    """One session as a replicate; `cut` iterations at the start are left out."""
    rows = whole_rows(diagnosis.rows)
    kept = [row for row in rows if row.first >= cut] or rows[-1:]
    units = np.array([row.merged if unit == ITERATIONS else row.counts.get(unit, 0) for row in kept], np.float64)
    taken = np.array([row.end_ns - row.start_ns for row in kept], np.float64)
    some = units > 0
    row_ns, weights = taken[some] / units[some], units[some]
    if cut and some.any():
        total, work = sum(row.end_ns - row.start_ns for row in kept), int(units.sum())
        sheet: Sheet | None = sheet_of_iterations(diagnosis.learner, kept)
    else:
        total, work, sheet = diagnosis.loop_ns, _counted(diagnosis).get(unit, 0), diagnosis.sheet
    components = _close(_without_startup(fold_labels(sheet)) if sheet else {}, total)
    own = components.pop(OWN, 0)  # what we cost is no cost of the script
    total -= own
    if total <= 0 or not work:
        raise UsageError(f"{diagnosis.name} measured nothing after its first iteration; run it for longer")
    row_ns = row_ns * (total / (total + own))
    if not len(row_ns) or not _counts_itself(diagnosis):
        row_ns, weights = np.array([total / work]), np.array([float(work)])
    q = diagnosis.quality
    return Run(
        name=diagnosis.name, start_s=diagnosis.start_unix_ns / 1e9, unit=unit, work=work,
        all_work=_counted(diagnosis).get(unit, 0),
        total_ns=total, components=components, row_ns=row_ns, row_weights=weights,
        warm_up=warm_up, dropped_share=q.dropped / q.attempted if q.attempted else 0.0, profiler_share=q.profiler_share,
        host=_plain(diagnosis.meta.get("host")), script=find_script(diagnosis.meta),
        returned=returned, pair=pair,
        spans=_without_startup(measure_spans(sheet)) if sheet else {}, left_out=cut if cut and some.any() else 0,
        doubt=check_loop(diagnosis), late_share=min(0.5, count_waits(diagnosis) * LATE_NS / total),
    )  # fmt: skip


def count_waits(diagnosis: Diagnosis) -> int:
    """Recorded waits that may have held up the loop: the learner's, and those of the busiest other process, or of all others
    as they share the cores."""
    own, *others = (sum(n.count for n in s.nodes if s.label_of(n.path).kind == m.WAIT) for s in diagnosis.session.shards)
    cores = _plain(diagnosis.meta.get("host")).get("usable_cores")
    return own + max(*others, sum(others) // (cores if isinstance(cores, int) and cores > 0 else 1), 0)


def _without_startup(labels: dict[str, int]) -> dict[str, int]:
    return {name: ns for name, ns in labels.items() if name not in OUTSIDE_THE_LOOP}


def check_loop(diagnosis: Diagnosis) -> str:
    """Why the loop's time should not be believed, in one sentence; "" where all ways to measure it agree.

    The spans say how long it took: the sum of what they hold on the learner's main thread, after start-up and before shut-down.
    The clock says when the first and the last env step or update were. The process says how long it ran, less its start-up and
    its end.
    """
    learner = diagnosis.learner
    if not diagnosis.phases.known or not learner.first_work_ns or not learner.last_work_ns:
        return ""  # only hooks see the loop's two ends
    ways = {
        "its spans": diagnosis.loop_ns,
        "the clock": learner.last_work_ns - diagnosis.first_work_ns,
        "the time of its process": _process_ns(diagnosis) - diagnosis.numbers.startup_ns,
    }
    order = sorted(ways, key=lambda way: ways[way])
    least, most = ways[order[0]], ways[order[-1]]
    # What the recorder did before the loop is in two of the ways; it is taken out of what is compared.
    if most - least <= max(LOOPS_AGREE * most, LOOPS_AGREE_NS) + diagnosis.numbers.profiler_ns:
        return ""
    return (
        f"the loop of {diagnosis.name} took {least / 1e9:.2f} s by {order[0]} and {most / 1e9:.2f} s by {order[-1]}, "
        "so its speed is not known"
    )


def _process_ns(diagnosis: Diagnosis) -> int:
    """How long the learner's process was recorded: as it says itself, or as whoever started it saw, where that is less."""
    learner, meta = diagnosis.learner, diagnosis.meta
    recorded = learner.end_ns - learner.start_ns
    begin, end = meta.get("start_unix_s"), meta.get("end_unix_s")
    if meta.get("pid") != learner.pid or not isinstance(begin, int | float) or not isinstance(end, int | float):
        return recorded
    return min(recorded, max(0, round((end - begin) * 1e9)))


def whole_run(diagnosis: Diagnosis) -> tuple[int, dict[str, int]]:
    """The main track's lifetime, and its components."""
    if diagnosis.sheet is None:
        return diagnosis.wall_ns, {UNTRACKED: diagnosis.wall_ns}
    return diagnosis.sheet.wall_ns, fold_labels(diagnosis.sheet)


def measure_iterations(diagnosis: Diagnosis) -> tuple[int, dict[str, int], dict[str, int]] | None:
    """The iterations without the first row, which holds the set-up: their time, their components and the calls of each label.

    In a long run that row stands for several iterations, one in 500 or fewer; they are left out with it.
    """
    rows = whole_rows(diagnosis.rows)
    if len(rows) < 3:
        return None
    rows = rows[1:]
    total = sum(row.end_ns - row.start_ns for row in rows)
    calls: dict[str, int] = {}
    for row in rows:
        for path, n in row.calls.items():
            if path < len(diagnosis.learner.paths):
                name = diagnosis.learner.label_of(path).name
                calls[name] = calls.get(name, 0) + n
    return total, _close(fold_labels(sheet_of_iterations(diagnosis.learner, rows)), total), calls


def fold_labels(sheet: Sheet) -> dict[str, int]:
    """Nanoseconds by label, of the leaves; they add up to the sheet."""
    owners: list[str] = []
    out: dict[str, int] = {}
    for row in sheet.rows:
        above = owners[row.parent] if row.parent >= 0 else UNTRACKED
        named = row.kind == SPAN and row.branch >= 0 and row.name != HANDED
        owners.append(OWN if row.kind == PROFILER else row.name if named else above)
        if row.leaf:
            name = row.name if row.kind == WAITING and above == UNTRACKED else owners[-1]
            out[name] = out.get(name, 0) + row.ns
    return out


def measure_spans(sheet: Sheet) -> dict[str, int]:
    """Nanoseconds in and below every label, and every phase that labels name; what is nested in its like counts once."""
    out: dict[str, int] = {}
    inside: list[frozenset[str]] = []  # by row: the labels and phases it is in
    for row in sheet.rows:
        outer = inside[row.parent] if row.parent >= 0 else frozenset()
        names: set[str] = set()
        if row.kind in (SPAN, WAITING) and row.branch >= 0 and row.name != HANDED:
            phase, slash, _ = row.name.partition("/")
            names = {row.name, phase} if slash else {row.name}
        for name in names - outer:
            out[name] = out.get(name, 0) + row.ns
        inside.append(outer | names)
    return out


def _close(components: Mapping[str, int], total: int) -> dict[str, int]:
    """The same components, adding up to the total: what is missing is untracked, and threads that overlap share the time."""
    missing = total - sum(components.values())
    rest = components.get(UNTRACKED, 0) + missing
    if rest >= 0:
        return {**components, UNTRACKED: rest}
    names = list(components)
    return dict(zip(names, split_exactly(total, [components[n] for n in names]), strict=True))


def _plain(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def find_script(meta: Mapping[str, Any]) -> str:
    """What was run, without its arguments: the script or module of the command."""
    command = meta.get("command")
    words = [w for w in command if isinstance(w, str)] if isinstance(command, list) else []
    if words and words[0].rpartition("/")[2].startswith("python"):
        words = words[1:]
    if words[:1] == ["-m"]:
        words = words[1:]
    return words[0] if words else ""
