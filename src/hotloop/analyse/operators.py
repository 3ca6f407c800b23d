"""Operators and kernels of a deep window, folded under our labels.

What lives here: rows of a trace in, `Operators` out. An operator belongs to the span that was open on its thread; a thread
without spans of ours (autograd has its own) works for the thread that has most. A kernel belongs where the call that launched
it was made, however much later the device ran it. Invariant: each nanosecond of an operator is counted once, for the
innermost."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ..model.device import COPY, CPU_OP, KERNEL, RUNTIME, SPAN, Operator, Operators, TraceRow
from ..model.phase import DECIDING, PHASE_NAMES
from .unions import union_ns

_PHASES = frozenset(name for name in PHASE_NAMES if name)
_DECIDING = frozenset(PHASE_NAMES[code] for code in DECIDING)


def fold_operators(rows: Sequence[TraceRow], iterations: int) -> Operators:
    """`rows` in the order of their start, outer ones first."""
    by_thread: dict[int, list[TraceRow]] = defaultdict(list)
    for row in rows:
        if row.kind == SPAN:
            by_thread[row.tid].append(row)
    lanes = {tid: _Lane(spans) for tid, spans in by_thread.items()}
    busiest = max(lanes.values(), key=lambda lane: lane.ns, default=_Lane([]))
    calls: Counter[tuple[str, str, str]] = Counter()
    times: Counter[tuple[str, str, str]] = Counter()
    for row, own_ns in _own_times([row for row in rows if row.kind == CPU_OP]):
        key = CPU_OP, row.name, lanes.get(row.tid, busiest).label_at(row.start_ns)
        calls[key] += 1
        times[key] += own_ns
    launched = {row.correlation: row for row in rows if row.kind == RUNTIME and row.correlation}
    device = [row for row in rows if row.kind in (KERNEL, COPY)]
    for row in device:
        launch = launched.get(row.correlation)
        label = lanes.get(launch.tid, busiest).label_at(launch.start_ns) if launch is not None else ""
        calls[row.kind, row.name, label] += 1
        times[row.kind, row.name, label] += row.dur_ns
    inside = [row for row in rows if row.kind in (CPU_OP, SPAN)]
    begin = min((row.start_ns for row in inside), default=0)
    end = max((row.start_ns + row.dur_ns for row in inside), default=0)
    found = (Operator(*key, calls[key], ns) for key, ns in times.items())
    ordered = tuple(sorted(found, key=lambda x: (-x.ns, x.kind, x.name, x.label)))
    starts = np.array([row.start_ns for row in device], np.int64)
    busy = union_ns(starts, starts + np.array([row.dur_ns for row in device], np.int64))
    return Operators(end - begin, iterations, busy, ordered)


class _Lane:
    """The spans of one thread as a line of stretches, each with one label: the innermost that names a phase, else the
    innermost."""

    def __init__(self, spans: Sequence[TraceRow]) -> None:
        self.ns = sum(span.dur_ns for span in spans)
        edges = sorted(
            [(span.start_ns, 1, -span.dur_ns, i) for i, span in enumerate(spans)]
            + [(span.start_ns + span.dur_ns, 0, span.dur_ns, i) for i, span in enumerate(spans)]
        )
        self._starts: list[int] = []
        self._labels: list[str] = []
        opened: dict[int, str] = {}
        for at, opens, _, i in edges:
            if opens:
                opened[i] = spans[i].name
            else:
                opened.pop(i, None)
            names = list(opened.values())
            label = next((name for name in reversed(names) if name.partition("/")[0] in _PHASES), names[-1] if names else "")
            self._starts.append(at)
            self._labels.append(label)
        self._name_gaps()

    def _name_gaps(self) -> None:
        """Between two spans it is the phase of the one that follows, as in the recording: before an env step it was collecting,
        before a backward pass learning."""
        following = ""
        for i in range(len(self._labels) - 1, -1, -1):
            phase = self._labels[i].partition("/")[0] if self._labels[i] else ""
            if phase in _DECIDING:
                following = phase
            elif not self._labels[i] and following:
                self._labels[i] = f"{following}/other"

    def label_at(self, at_ns: int) -> str:
        i = bisect_right(self._starts, at_ns) - 1
        return self._labels[i] if i >= 0 else ""


def _own_times(ops: Iterable[TraceRow]) -> list[tuple[TraceRow, int]]:
    """Each operator's time without those it calls on its thread."""
    own: list[list[int]] = []
    rows: list[TraceRow] = []
    opened: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: (end, index)
    for row in ops:
        stack = opened[row.tid]
        end = row.start_ns + row.dur_ns
        while stack and stack[-1][0] <= row.start_ns:
            stack.pop()
        if stack:
            own[stack[-1][1]][0] -= min(row.dur_ns, max(0, stack[-1][0] - row.start_ns))
        stack.append((end, len(rows)))
        rows.append(row)
        own.append([row.dur_ns])
    return [(row, max(0, ns)) for row, (ns,) in zip(rows, own, strict=True)]
