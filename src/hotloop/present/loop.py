"""The training loop by phase, and the lines it was seen at, as every view shows them.

What lives here: results in, rows out; no drawing. Invariant: the rows of the loop add up to it, and the parts of a phase to
the phase, in whole nanoseconds and in tenths of a percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..analyse.diagnosis import Diagnosis
from ..analyse.lines import Line
from ..analyse.phases import Part
from ..model import shard as m
from ..model.ledger import PROFILER, UNATTRIBUTED
from ..model.phase import phase_name
from ..model.session import Source
from .units import round_parts

NO_PHASE = "(no phase)"


@dataclass(frozen=True, slots=True)
class LoopRow:
    """A row of the loop: a phase, what it consists of, or what belongs to none."""

    name: str
    direct_ns: int
    inferred_ns: int = 0
    waiting_ns: int = 0  # of the direct time
    share: int = 0  # of the loop, in tenths of a percent
    kind: str = ""  # "" or, for the rows that are no phase, unattributed or profiler
    parts: tuple[LoopRow, ...] = ()

    @property
    def ns(self) -> int:
        return self.direct_ns + self.inferred_ns


def list_rows(diagnosis: Diagnosis) -> tuple[LoopRow, ...]:
    """The phases of the loop with their parts, largest first, then what is nobody's and what is ours."""
    phases = diagnosis.phases
    rows = [
        LoopRow(p.name or NO_PHASE, p.direct_ns, p.inferred_ns, p.waiting_ns, parts=tuple(map(_row, p.parts)))
        for p in phases.phases
    ]
    rows.append(LoopRow(UNATTRIBUTED, phases.unattributed_ns, kind=UNATTRIBUTED))
    rows.append(LoopRow(PROFILER, phases.profiler_ns, kind=PROFILER))
    rows = [row for row in rows if row.ns]
    shares = round_parts([row.ns for row in rows])
    return tuple(replace(row, share=share, parts=_share_out(row.parts, share)) for row, share in zip(rows, shares, strict=True))


def _row(part: Part) -> LoopRow:
    return LoopRow(part.name, part.direct_ns, part.inferred_ns, part.waiting_ns)


def fold_rows(parts: Sequence[LoopRow], least_share: int, most: int) -> tuple[LoopRow, ...]:
    """The same with the small ones as one row, so that what is shown still adds up; none where all are small."""
    large = [p for p in parts if p.share >= least_share][:most]
    small = parts[len(large) :]
    if not large or len(small) < 2:
        return tuple(parts) if large else ()
    direct, inferred, waiting, share = (
        sum(getattr(p, name) for p in small) for name in ("direct_ns", "inferred_ns", "waiting_ns", "share")
    )
    return (*large, LoopRow(f"({len(small)} more)", direct, inferred, waiting, share))


def inferred_share(row: LoopRow) -> int:
    """Of the loop, in tenths of a percent; as its parts say where it has any."""
    return sum(map(inferred_share, row.parts)) if row.parts else _of_row(row, row.inferred_ns)


def waiting_share(row: LoopRow) -> int:
    return sum(map(waiting_share, row.parts)) if row.parts else _of_row(row, row.waiting_ns)


def _of_row(row: LoopRow, ns: int) -> int:
    return round(row.share * ns / row.ns) if row.ns else 0


def _share_out(parts: Sequence[LoopRow], share: int) -> tuple[LoopRow, ...]:
    shares = round_parts([p.ns for p in parts], share)
    return tuple(replace(p, share=s) for p, s in zip(parts, shares, strict=True))


# ---- lines ----


@dataclass(frozen=True, slots=True)
class ShownLine:
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


def show_lines(diagnosis: Diagnosis, lines: Sequence[Line]) -> list[ShownLine]:
    """Lines as they are shown."""
    cwd = str(diagnosis.meta.get("cwd") or "")
    roots = {b.name for b in diagnosis.ledger.tree if b.kind == m.ROOT}
    return [
        ShownLine(
            where=f"{short_file(x.file, cwd)}:{x.line}",
            function=x.function,
            text=text_of(diagnosis.sources, x),
            phase=phase_name(x.phase),
            span="" if x.span in roots else x.span,
            samples=x.samples,
            share=x.share,
            inner=_short_inner(x.inner, cwd),
            file=x.file,
            line=x.line,
        )
        for x in lines
    ]


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
