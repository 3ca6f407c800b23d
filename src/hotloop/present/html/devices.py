"""The device and the deep window as the page shows them: facts, spans, lines of code, memory, kernels and operators.

What lives here: selection and rounding, no markup. Invariants: every text went through `show` or stands in the table of names;
rows beyond a limit are gathered into one with their number and sums; shares are whole tenths of a percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...analyse.devices import BETWEEN, DeviceMemory, Devices, share_operators
from ...analyse.diagnosis import Diagnosis
from ...model.device import COPY, CPU_OP, KERNEL, SYNC, Transfer
from ..units import STEPS, round_parts
from .names import Names, show

_NAMES, _IDLE, _PAIRS, _BARS, _NOTES = 8, 6, 3, 12, 20  # shown of each
_PAIR_SHARE = 0.01  # of the device's time: less says nothing


def device_data(diagnosis: Diagnosis, names: Names, limit: int) -> dict[str, Any] | None:
    """None where no device was used."""
    d = diagnosis.devices
    if d is None:
        return None
    spans = [(r.spans, r.host_ns, r.least_ns, r.most_ns, r.blocked_ns, r.copy_ns, r.waited_ns) for r in d.rows]
    lines = [(t.count, t.blocking, t.pinned, t.bytes, t.ns) for t in d.transfers]
    utilisation = diagnosis.resources.get("gpu_mean")
    return {
        "names": [show(name, 120) for name in d.names[:_NAMES]],
        "more_names": max(0, len(d.names) - _NAMES),
        "processes": d.processes,
        "lifetime_ns": d.lifetime_ns,
        "busy_least": _tenths(d.busy_least),
        "idle": [_tenths(d.idle_least), _tenths(d.idle_most)] if d.measured_share else None,
        "utilisation": None if utilisation is None else _tenths(utilisation / 100),
        "blocked_ns": d.blocked_ns,
        "measured": _tenths(d.measured_share),
        "cost_share": round(d.cost_share, 6),
        "idle_in": [[names(name), _tenths(share)] for name, share in d.idle_in[:_IDLE]],
        "spans": _rows([[names(r.name), int(r.is_host_only)] for r in d.rows[:limit]], spans),
        "pairs": _pairs(d, names),
        "lines": _rows([_place(t) for t in d.transfers[:limit]], lines),
        "memory": None if d.memory is None else _memory(d.memory, names),
        "notes": [show(note, 600) for note in d.notes[:_NOTES]],
        "more_notes": max(0, len(d.notes) - _NOTES),
    }


def operators_data(diagnosis: Diagnosis, names: Names, limit: int) -> dict[str, Any] | None:
    """None where there was no deep window. Kernels and copies where there are any; on the CPU alone, operators."""
    o = diagnosis.operators
    if o is None:
        return None
    device_ns = o.total_ns(KERNEL, COPY)
    kinds = (KERNEL, COPY) if device_ns else (CPU_OP,)
    rows = [row for row in o.rows if row.kind in kinds]
    labels = [(x.label, x.device_ns if device_ns else x.op_ns) for x in share_operators(o)]
    return {
        "window_ns": o.window_ns,
        "iterations": o.iterations,
        "operators_ns": o.total_ns(CPU_OP),
        "kernels_ns": o.total_ns(KERNEL),
        "copies": _tenths(o.total_ns(COPY) / device_ns) if device_ns else None,
        "idle": _tenths(1 - o.kernel_busy_ns / o.window_ns) if device_ns and o.window_ns else None,
        "folded": _tenths(o.folded(*kinds)),
        "whole_ns": o.total_ns(*kinds),
        "labels": _labels([(label, ns) for label, ns in labels if ns], names),
        "rows": _rows([[names(r.name), names(r.label or BETWEEN)] for r in rows[:limit]], [(r.calls, r.ns) for r in rows]),
    }


def _rows(texts: Sequence[list[Any]], numbers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What is shown one by one, texts first; of what is not, the number of rows and the sums of their numbers."""
    rest = numbers[len(texts) :]
    return {
        "rows": [[*text, *row] for text, row in zip(texts, numbers, strict=False)],
        "gathered": [len(rest), *map(sum, zip(*rest, strict=True))] if rest else None,
    }


def _pairs(d: Devices, names: Names) -> list[list[int]]:
    """Who was blocked for whose work, where these differ and it was long."""
    found = [b for b in d.blocked if b.inside != b.owner and b.ns > _PAIR_SHARE * d.lifetime_ns]
    return [[names(b.inside), names(b.owner), b.ns] for b in found[:_PAIRS]]


def _place(t: Transfer) -> list[Any]:
    way = "wait" if t.direction == SYNC else t.direction
    return [show(t.file, 300), t.line, show(t.function, 200), show(t.call, 80), way]


def _memory(memory: DeviceMemory, names: Names) -> dict[str, Any]:
    return {
        "allocated": memory.peak_allocated,
        "reserved": memory.peak_reserved,
        "unused": _tenths(memory.fragmentation),
        "growth": memory.growth,
        "peaks": [[names(name), peak] for name, peak in memory.peaks[:_BARS]],
        "more_peaks": max(0, len(memory.peaks) - _BARS),
    }


def _labels(parts: list[tuple[str, int]], names: Names) -> list[list[int]]:
    """Name, time, share, largest first; the smallest are one row that says how many they are."""
    parts = sorted(parts, key=lambda part: -part[1])
    if len(parts) > _BARS:
        rest = parts[_BARS - 1 :]
        parts = [*parts[: _BARS - 1], (f"({len(rest):,} more)", sum(ns for _, ns in rest))]
    shares = round_parts([ns for _, ns in parts])
    return [[names(name), ns, share] for (name, ns), share in zip(parts, shares, strict=True)]


def _tenths(share: float) -> int:
    return round(min(1.0, max(0.0, share)) * STEPS)
