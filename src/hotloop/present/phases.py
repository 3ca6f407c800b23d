"""The training loop by phase, and the lines it was seen at, as every view shows them.

What lives here: results in, rows out; no drawing. Invariant: the rows of the loop add up to it, and the parts of a phase to
the phase, in whole nanoseconds and in tenths of a percent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analyse.lines import Line
from ..analyse.phases import FOR_OTHERS
from ..analyse.report import Report
from ..model import phase as ph
from ..model import shard as m
from ..model.ledger import PROFILER, UNATTRIBUTED, find_containers
from ..model.phase import phase_name
from ..model.session import Source
from .units import round_parts

BETWEEN = "between calls"  # what no hooked call measured
NO_PHASE = "(no phase)"
FOR_WORKERS = "(waiting for workers)"
_CALLING = (m.USER, m.OVERFLOW)


@dataclass(frozen=True, slots=True)
class Part:
    """A row of the loop: a phase, what it consists of, or what belongs to none."""

    name: str
    direct_ns: int
    inferred_ns: int = 0
    waiting_ns: int = 0  # of the direct time
    share: int = 0  # of the loop, in tenths of a percent
    kind: str = ""  # "" or, for the rows that are no phase, unattributed or profiler
    parts: tuple[Part, ...] = ()

    @property
    def ns(self) -> int:
        return self.direct_ns + self.inferred_ns


def list_parts(report: Report) -> tuple[Part, ...]:
    """The phases of the loop with their parts, largest first, then what is nobody's and what is ours."""
    phases = report.phases
    children = _parts_by_phase(report)
    rows = []
    for p in phases.phases:
        name = phase_name(p.code) or NO_PHASE
        below = [Part(child, ns, 0, waiting) for child, (ns, waiting) in children.get(p.code, {}).items()]
        if p.handed_ns:
            below.append(Part(FOR_WORKERS, p.handed_ns, 0, p.handed_ns))
        direct, waiting = sum(c.direct_ns for c in below), sum(c.waiting_ns for c in below)
        if p.direct_ns > direct:  # pauses between calls, shared out over the phases
            below.append(Part(m.GC_PAUSE, p.direct_ns - direct, 0, max(0, p.waiting_ns - waiting)))
        if p.inferred_ns:
            below.append(Part(BETWEEN, 0, p.inferred_ns))
        rows.append(Part(name, p.direct_ns, p.inferred_ns, p.waiting_ns, parts=tuple(sorted(below, key=lambda c: -c.ns))))
    rows.append(Part(UNATTRIBUTED, phases.unattributed_ns, kind=UNATTRIBUTED))
    rows.append(Part(PROFILER, phases.profiler_ns, kind=PROFILER))
    rows = [row for row in rows if row.ns]
    shares = round_parts([row.ns for row in rows])
    return tuple(replace(row, share=share, parts=_share_out(row.parts, share)) for row, share in zip(rows, shares, strict=True))


def fold_parts(parts: Sequence[Part], least_share: int, most: int) -> tuple[Part, ...]:
    """The same with the small ones as one row, so that what is shown still adds up; none where all are small."""
    large = [p for p in parts if p.share >= least_share][:most]
    small = parts[len(large) :]
    if not large or len(small) < 2:
        return tuple(parts) if large else ()
    direct, inferred, waiting, share = (
        sum(getattr(p, name) for p in small) for name in ("direct_ns", "inferred_ns", "waiting_ns", "share")
    )
    return (*large, Part(f"({len(small)} more)", direct, inferred, waiting, share))


def inferred_share(row: Part) -> int:
    """Of the loop, in tenths of a percent; as its parts say where it has any."""
    return sum(map(inferred_share, row.parts)) if row.parts else _of_row(row, row.inferred_ns)


def waiting_share(row: Part) -> int:
    return sum(map(waiting_share, row.parts)) if row.parts else _of_row(row, row.waiting_ns)


def _of_row(row: Part, ns: int) -> int:
    return round(row.share * ns / row.ns) if row.ns else 0


def _share_out(parts: Sequence[Part], share: int) -> tuple[Part, ...]:
    shares = round_parts([p.ns for p in parts], share)
    return tuple(replace(p, share=s) for p, s in zip(parts, shares, strict=True))


def _parts_by_phase(report: Report) -> dict[int, dict[str, tuple[int, int]]]:
    """By phase and name: the direct time of the main track, and how much of it is waiting.

    A part is the outermost span of its phase; a container is none, its parts are."""
    ledger = report.ledger
    main = ledger.balances[0] if ledger.balances else None
    if main is None:
        return {}
    tree = ledger.tree
    containers = find_containers([(b.parent, b.kind, b.owns) for b in tree])
    outermost: list[int] = []  # by branch: the part it belongs to
    for i, branch in enumerate(tree):
        above = tree[branch.parent] if branch.parent >= 0 else None
        inside = above is not None and above.kind in _CALLING and above.phase == branch.phase
        outermost.append(outermost[branch.parent] if inside and branch.parent not in containers else i)
    times: dict[int, Counter[str]] = {}
    waits: dict[int, Counter[str]] = {}
    for shard, track, at, ns in ledger.self_by_track:
        branch = tree[at]
        if (shard, track) != (main.shard, main.track) or not ns or branch.phase == ph.STARTUP or at in containers:
            continue
        own_row = branch.kind == m.GARBAGE or branch.name in FOR_OTHERS  # shared out over the phases
        if branch.kind not in (*_CALLING, m.WAIT, m.GARBAGE) or (own_row and not branch.phase):
            continue
        code = branch.phase or (ph.WAIT if branch.kind == m.WAIT else ph.NONE)
        part = tree[outermost[at] if branch.phase else at]
        name = part.name.removeprefix(f"{phase_name(code)}/") or "(no name)"
        times.setdefault(code, Counter())[name] += ns
        waits.setdefault(code, Counter())[name] += ns if branch.kind == m.WAIT else 0
    return {code: {name: (ns, waits[code][name]) for name, ns in found.items()} for code, found in times.items()}


# ---- lines ----


@dataclass(frozen=True, slots=True)
class Spot:
    """A line as it is shown."""

    where: str  # file:line, the file as short as it is clear
    function: str
    text: str  # of the source, as far as the run kept it
    phase: str
    span: str  # innermost; "" where none was open
    samples: int
    share: float  # of all samples it is listed with
    inner: str
    file: str
    line: int


def list_spots(report: Report, sources: Mapping[str, Source] | None) -> list[Spot]:
    """The lines of the main track, most seen first; shares are of the loop."""
    return _merge(report, [x for x in report.lines if _is_main(report, x)], sources)


def list_other_spots(report: Report, sources: Mapping[str, Source] | None) -> list[Spot]:
    """Those of all other threads and processes together, without what only waits for work; only samples at work count, and
    shares are of what is listed."""
    waits = {b.name for b in report.ledger.tree if b.kind == m.WAIT}
    others = [replace(x, samples=x.at_work) for x in report.lines if x.at_work and not _is_main(report, x)]
    return _merge(report, [x for x in others if x.phase or x.span not in waits], sources)


def _is_main(report: Report, line: Line) -> bool:
    main = report.ledger.balances[0] if report.ledger.balances else None
    return main is not None and (line.shard, line.track) == (main.shard, main.track)


def _merge(report: Report, chosen: Sequence[Line], sources: Mapping[str, Source] | None) -> list[Spot]:
    total = sum(x.samples for x in chosen) or 1
    merged: dict[tuple[str, int, str, int, str], tuple[Line, int]] = {}
    for line in chosen:
        key = line.file, line.line, plain_function(line.function), line.phase, line.span
        first, before = merged.get(key, (line, 0))
        merged[key] = first, before + line.samples
    cwd = str(report.meta.get("cwd") or "")
    roots = {b.name for b in report.ledger.tree if b.kind == m.ROOT}
    found = sorted(merged.values(), key=lambda row: -row[1])
    return [
        Spot(
            where=f"{short_file(x.file, cwd)}:{x.line}",
            function=plain_function(x.function),
            text=text_of(sources, x),
            phase=phase_name(x.phase),
            span="" if x.span in roots else x.span,
            samples=samples,
            share=samples / total,
            inner=_short_inner(x.inner, cwd),
            file=x.file,
            line=x.line,
        )
        for x, samples in found
    ]


_COMPREHENSION = re.compile(r"((\.<locals>)?\.<(genexpr|listcomp|setcomp|dictcomp)>)+$")


def plain_function(name: str) -> str:
    """The function as its author knows it: a comprehension is part of the one it stands in.

    >>> plain_function("Grid.flood.<locals>.<genexpr>"), plain_function("main.<locals>.act")
    ('Grid.flood', 'main.<locals>.act')
    """
    return _COMPREHENSION.sub("", name) or name


_PACKAGES = ("/site-packages/", "/dist-packages/")


def short_file(file: str, cwd: str) -> str:
    """
    >>> short_file("/home/me/rl/train.py", "/home/me/rl"), short_file("/x/lib/python3.11/site-packages/torch/nn/linear.py", "")
    ('train.py', 'torch/nn/linear.py')
    >>> short_file("/a/b/c/d/e.py", "/home/me")
    '…/d/e.py'
    """
    plain = file.replace("\\", "/")
    for mark in _PACKAGES:
        if mark in plain:
            return plain.rpartition(mark)[2]
    folder = cwd.replace("\\", "/").rstrip("/") + "/"
    if len(folder) > 1 and plain.startswith(folder):
        return plain[len(folder) :]
    parts = plain.split("/")
    return "…/" + "/".join(parts[-2:]) if len(parts) > 4 else file


def _short_inner(inner: str, cwd: str) -> str:
    """`name (file:line)`, the file shortened."""
    name, found, place = inner.removesuffix(")").rpartition(" (")
    return f"{name} ({short_file(place, cwd)})" if found else inner


def text_of(sources: Mapping[str, Source] | None, line: Line) -> str:
    """The line's source, as far as the run kept it."""
    source = sources.get(line.file) if sources else None
    return source.text.get(line.line, "").strip() if source else ""
