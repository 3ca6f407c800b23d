"""The tables of a session as plain rows: what `hotloop report --json` prints and `hotloop.load` answers.

What lives here: a diagnosis in, dataclasses of numbers and texts out. Times are in seconds, shares from 0 to 1. The fields'
names are a contract: they may be added to, never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..analyse.diagnosis import Diagnosis
from ..model import shard as m
from ..model.ledger import Operation
from ..model.phase import phase_name
from .loop import text_of

MB = 1 << 20
NONE = "none"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A phase of the training loop."""

    phase: str
    share: float  # of the loop
    total_s: float
    direct_s: float  # measured
    inferred_s: float  # between measured calls
    waiting_s: float  # of the direct time
    mechanisms: dict[str, float]  # seconds by what they were spent on; they add up to the total
    limit_s: float  # what would be left without what the findings name, with learning unchanged
    batched_s: float  # ... and with more samples per call, which may change what is learnt


@dataclass(frozen=True, slots=True)
class PartRow:
    """What a phase consists of; the parts of a phase add up to it."""

    phase: str
    name: str
    share: float  # of the loop
    total_s: float
    waiting_s: float
    inferred: bool


@dataclass(frozen=True, slots=True)
class OperationRow:
    """A label over all its spans, in all threads and processes."""

    name: str
    calls: int
    open: int  # spans that had not ended
    total_s: float
    self_s: float
    waiting_s: float
    min_s: float
    max_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    share: float  # of the wall time, with at least one span open
    busy_s: float
    union_s: float
    union_high_s: float
    union_exact: bool
    concurrency: float
    cpu_share: float | None
    memory_peak_mb: float | None
    memory_method: str | None
    gpu_peak_mb: float | None
    site: str | None  # file:line where it was first opened


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line of the program, by the samples that saw it."""

    file: str
    line: int
    function: str
    first_line: int  # of the function
    phase: str
    span: str  # the innermost one
    samples: int
    share: float  # of the samples of its thread
    process: int
    track: int
    inner: str  # what was most often at work below it
    text: str
    mechanism: str  # what most of its samples were spent on


@dataclass(frozen=True, slots=True)
class IterationRow:
    """One iteration, or neighbours in a row; then the times are of all of them together."""

    first: int
    merged: int
    start_s: float  # since the first one began
    duration_s: float
    counts: dict[str, int]


def pick(x: object, names: str) -> dict[str, Any]:
    """These attributes, by their names."""
    return {name: getattr(x, name) for name in names.split()}


def seconds(x: object, names: str) -> dict[str, Any]:
    """These times, which it has in nanoseconds: `total_s` from its `total_ns`."""
    return {f"{name}_s": getattr(x, f"{name}_ns") / 1e9 for name in names.split()}


def phase_rows(d: Diagnosis) -> list[PhaseRow]:
    return [
        PhaseRow(
            p.name or NONE,
            _share(p.total_ns, d.phases.loop_ns),
            **seconds(p, "total direct inferred waiting"),
            mechanisms={name: ns / 1e9 for name, ns in limit.mechanisms.items()},
            **seconds(limit, "limit batched"),
        )
        for p, limit in zip(d.phases.phases, d.limits.phases, strict=True)
    ]


def part_rows(d: Diagnosis) -> list[PartRow]:
    return [
        PartRow(
            phase=p.name or NONE,
            name=part.name,
            share=_share(part.total_ns, d.phases.loop_ns),
            **seconds(part, "total waiting"),
            inferred=part.inferred_ns > 0,
        )
        for p in d.phases.phases
        for part in p.parts
    ]


def operation_rows(d: Diagnosis, kinds: tuple[int, ...] = (m.USER, m.OVERFLOW)) -> list[OperationRow]:
    """Those of the user's own spans and of hooks; or of another kind, such as waits."""
    return [_operation(o, d) for o in d.operations if o.kind in kinds and (o.calls or o.open)]


def line_rows(d: Diagnosis) -> list[LineRow]:
    return [
        LineRow(
            **pick(x, "file line function first_line span samples share track inner"),
            phase=phase_name(x.phase) or NONE,
            process=x.shard,
            text=text_of(d.sources, x),
            mechanism=x.spent[0][0] if x.spent else "",
        )
        for x in d.lines
    ]


def iteration_rows(d: Diagnosis) -> list[IterationRow]:
    return [
        IterationRow(
            x.first, x.merged, (x.start_ns - d.rows[0].start_ns) / 1e9, (x.end_ns - x.start_ns) / 1e9, x.counts
        )
        for x in d.rows
    ]  # fmt: skip


def _operation(o: Operation, d: Diagnosis) -> OperationRow:
    return OperationRow(
        name=o.name,
        calls=o.calls,
        open=o.open,
        total_s=o.busy_ns / 1e9,
        **seconds(o, "self waiting min max busy union union_high"),
        p50_s=o.percentile_ns(0.5) / 1e9,
        p95_s=o.percentile_ns(0.95) / 1e9,
        p99_s=o.percentile_ns(0.99) / 1e9,
        share=min(1.0, _share(o.union_ns, d.wall_ns)),
        union_exact=o.union_high_ns == o.union_ns,
        concurrency=o.concurrency,
        cpu_share=o.cpu_ns / o.cpu_wall_ns if o.cpu_wall_ns else None,
        memory_peak_mb=o.rise_max_bytes / MB if o.peak_readings or o.end_readings else None,
        memory_method="peak" if o.peak_readings else "end points" if o.end_readings else None,
        gpu_peak_mb=o.gpu_peak_bytes / MB if o.gpu_peak_bytes else None,
        site=d.sites.get(o.name),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
