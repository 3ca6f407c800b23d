"""The DEVICE and OPERATORS sections: what devices did, who waited for them and where, and a deep window under our labels.

What lives here: results in, rich renderables and JSON-ready data out. Shown only where a session has such data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyse.devices import BETWEEN, DeviceRow, Devices, share_operators
from ..analyse.diagnosis import Diagnosis
from ..model.device import COPY, CPU_OP, KERNEL, SYNC, TO_DEVICE, TO_HOST, Operators
from ..printing.text import escape
from .drawing import FAINT, fold_text, join_facts, make_table
from .tables import pick, seconds
from .units import count_text, duration_text, interval_text, share_text

MB = 1 << 20
ROWS_SHOWN, LINES_SHOWN, OPS_SHOWN = 10, 8, 12
_DEVICE_KINDS = (KERNEL, COPY)
_DIRECTIONS = {TO_DEVICE: "to device", TO_HOST: "to host", SYNC: "wait"}


def device_sections(diagnosis: Diagnosis, width: int) -> list[RenderableType]:
    """What there is to say; nothing where no device was used and no deep window taken."""
    found: list[RenderableType] = []
    if diagnosis.devices is not None:
        found.append(_devices(diagnosis.devices, diagnosis.resources, width))
    if diagnosis.operators is not None:
        found.append(_operators(diagnosis.operators, width))
    return found


def _devices(d: Devices, resources: Mapping[str, float], width: int) -> RenderableType:
    lines: list[RenderableType] = [Text(f"DEVICE  {escape(', '.join(d.names))}", style="bold")]
    facts = [f"in use {duration_text(d.lifetime_ns)}", f"busy at least {share_text(d.busy_least)}"]
    if d.measured_share:
        facts.append(f"idle {interval_text(d.idle_least, d.idle_most)}")
    if "gpu_mean" in resources:
        facts.append(f"utilisation by NVML {resources['gpu_mean']:.0f} %")
    facts += [
        f"host blocked {duration_text(d.blocked_ns)}",
        f"measured {share_text(d.measured_share)} of it, the rest is scaled",
        f"own cost {d.cost_share * 100:.2f} %",
    ]
    lines.append(Text(join_facts(facts, width, "  ")))
    if d.idle_in:
        what = ", ".join(f"{escape(name)} {share_text(share)}" for name, share in d.idle_in[:4])
        lines += fold_text(f"idle while the host was in: {what}", width)
    lines += [_labels(d, width), *_blocked(d, width), *_lines(d, width), *_memory(d, width)]
    lines += [row for note in d.notes for row in fold_text(f"note: {escape(note)}", width)]
    return Group(*lines, "")


def _labels(d: Devices, width: int) -> Table:
    table = _table(max(12, width - 58), "span", "calls", "host", "device ≥", "device ≤", "blocked", "waited")
    for row in d.rows[:ROWS_SHOWN]:
        cells = (row.host_ns, row.least_ns, row.most_ns, row.blocked_ns, row.waited_ns)
        table.add_row("  " + escape(row.name), count_text(row.spans), *(duration_text(ns) if ns else "" for ns in cells))
    return table


def _blocked(d: Devices, width: int) -> list[Text]:
    return [
        row
        for b in d.blocked[:3]
        if b.ns > 0.01 * d.lifetime_ns and b.inside != b.owner
        for row in fold_text(
            f"{duration_text(b.ns)} blocked in {escape(b.inside)} is for work queued in {escape(b.owner)}", width
        )
    ]


def _lines(d: Devices, width: int) -> list[RenderableType]:
    if not d.transfers:
        return []
    table = _table(max(12, width - 61), "copies and waits", "call", "count", "blocking", "size", "time")
    for t in d.transfers[:LINES_SHOWN]:
        place = f"{t.file.rpartition('/')[2]}:{t.line} {t.function}" if t.file else t.function
        numbers = [
            count_text(t.count),
            count_text(t.blocking),
            f"{t.bytes / MB:.1f} MB" if t.bytes else "",
            duration_text(t.ns),
        ]
        table.add_row("  " + escape(place), f"{t.call} ({_DIRECTIONS[t.direction]})", *numbers)
    return [table]


def _memory(d: Devices, width: int) -> list[Text]:
    if d.memory is None:
        return []
    m = d.memory
    facts = [f"memory: peak {m.peak_allocated / MB:.1f} MB", f"reserved {m.peak_reserved / MB:.1f} MB"]
    if m.fragmentation > 0.2:
        facts.append(f"{share_text(m.fragmentation)} of the reserved not in use")
    if m.growth:
        facts.append(f"grew by {m.growth / MB:.1f} MB in the last third")
    facts += [f"{escape(name)} {peak / MB:.1f} MB" for name, peak in m.peaks[:4]]
    return [Text(join_facts(facts, width, "  "))]


def _operators(o: Operators, width: int) -> RenderableType:
    on_device = o.total_ns(*_DEVICE_KINDS)
    kinds = _DEVICE_KINDS if on_device else (CPU_OP,)
    whole = o.total_ns(*kinds)
    facts = [f"deep window of {duration_text(o.window_ns)}"]
    if o.iterations:
        facts[0] += f", {o.iterations} iterations"
    facts.append(f"operators {duration_text(o.total_ns(CPU_OP))}")
    if on_device:
        facts += [
            f"kernels {duration_text(o.total_ns(KERNEL))}",
            f"copies {share_text(o.total_ns(COPY) / on_device)} of the device's time",
            f"device without work {share_text(1 - min(1.0, o.kernel_busy_ns / o.window_ns) if o.window_ns else 0.0)}",
        ]
    facts.append(f"{share_text(o.folded(*kinds))} under a label")
    lines: list[RenderableType] = [Text("OPERATORS", style="bold"), Text(join_facts(facts, width, "  "))]
    parts = [(x.label, x.device_ns if on_device else x.op_ns) for x in share_operators(o)]
    shares = ", ".join(
        f"{escape(name)} {share_text(ns / whole)}" for name, ns in sorted(parts, key=lambda x: -x[1])[:6] if whole
    )
    lines += fold_text(f"by label: {shares}", width)
    table = _table(max(12, width - 52), "kernel" if on_device else "operator", "in", "calls", "time", "share")
    for row in [x for x in o.rows if x.kind in kinds][:OPS_SHOWN]:
        share = share_text(row.ns / whole) if whole else ""
        table.add_row(
            "  " + escape(row.name)[:60], escape(row.label or BETWEEN), count_text(row.calls), duration_text(row.ns), share
        )
    return Group(*lines, table, Text("  the whole timeline: open torch_trace.json in ui.perfetto.dev", style=FAINT), "")


def _table(room: int, first: str, *heads: str) -> Table:
    return make_table(f"  {first}", *heads, room=min(room, 60), left=("call", "in"))


# ---- JSON ----


def device_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """The key `device` of the JSON report; null where no device was used."""
    d = diagnosis.devices
    if d is None:
        return None
    return {
        "names": list(d.names),
        **pick(d, "processes measured_share busy_least idle_least idle_most"),
        **seconds(d, "lifetime"),
        "own_cost_share": d.cost_share,
        "idle_in": dict(d.idle_in),
        "spans": [_span(r) for r in d.rows],
        "blocked": [{"in": b.inside, "for": b.owner, "s": b.ns / 1e9} for b in d.blocked],
        "transfers": [{k: v for k, v in asdict(t).items() if k != "ns"} | {"s": t.ns / 1e9} for t in d.transfers],
        "memory": None if d.memory is None else asdict(d.memory) | {"peaks": dict(d.memory.peaks)},
        "notes": list(d.notes),
    }  # fmt: skip


def reads_data(diagnosis: Diagnosis, most: int = 200) -> list[dict[str, Any]]:
    """The key `tensor_reads`: lines that take tensors of the CPU apart; counts are estimates."""
    return [pick(t, "file line function call count") for t in diagnosis.reads[:most]]


def _span(row: DeviceRow) -> dict[str, Any]:
    times = {f"{key[:-3]}_s": value / 1e9 for key, value in asdict(row).items() if key.endswith("_ns")}
    return {"name": row.name, "count": row.spans, "host_only": row.is_host_only, **times}


def operator_data(diagnosis: Diagnosis, most: int = 200) -> dict[str, Any] | None:
    """The key `operators`; null where there was no deep window."""
    o = diagnosis.operators
    if o is None:
        return None
    return {
        "window_s": o.window_ns / 1e9,
        "iterations": o.iterations,
        "device_busy_s": o.kernel_busy_ns / 1e9,
        "folded": o.folded(*_DEVICE_KINDS) if o.total_ns(*_DEVICE_KINDS) else o.folded(CPU_OP),
        "labels": [{"label": x.label, **seconds(x, "op device")} for x in share_operators(o)],
        "rows": [pick(x, "kind name label calls") | {"s": x.ns / 1e9} for x in o.rows[:most]],
    }
