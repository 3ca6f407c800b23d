"""`torch_trace.json` and what was folded from it, `torch_ops.json`.

What lives here: reading a trace of `torch.profiler` into rows, and the folded file. The trace is read once, when the run ends
or at the first report: it may have hundreds of megabytes. Invariant: what cannot be is left out; what is too large is not
read."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

from ..errors import UnreadableError
from ..model import device as d
from ..model.trace import TRACE_FILE
from .writer import write_json

OPS_FILE = "torch_ops.json"
MOST_TRACE_BYTES = 512 << 20
MOST_OPS_BYTES = 4 << 20
_MOST_ROWS = 4000
_KINDS = {
    "hotloop": d.SPAN, "cpu_op": d.CPU_OP, "kernel": d.KERNEL, "gpu_memcpy": d.COPY, "gpu_memset": d.COPY, "cuda_runtime":
    d.RUNTIME, "cuda_driver": d.RUNTIME, }  # fmt: skip


def find_trace(session: Path) -> Path | None:
    for name in (TRACE_FILE, TRACE_FILE + ".gz"):
        path = session / name
        if path.is_file() and not path.is_symlink():
            return path
    return None


def read_trace(path: Path) -> list[d.TraceRow]:
    """The rows of a trace, in the order of their start."""
    try:
        opened: Any = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # noqa: SIM115
        with opened as file:
            data = file.read(MOST_TRACE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableError(f"{path} cannot be read ({error})") from None
    if len(data) > MOST_TRACE_BYTES:
        raise UnreadableError(
            f"{path} is larger than {MOST_TRACE_BYTES >> 20} MB; trace fewer iterations: --torch-trace active=1"
        )
    try:
        events = json.loads(data)["traceEvents"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UnreadableError(f"{path} is no trace of torch.profiler") from None
    rows = []
    for event in events if isinstance(events, list) else ():
        category = event.get("cat") if isinstance(event, dict) and event.get("ph") == "X" else None
        kind = _KINDS.get(category) if isinstance(category, str) else None
        if kind is not None:
            try:
                args = event.get("args") or {}
                tid = event["tid"] if isinstance(event["tid"], int) else 0
                start, dur = round(event["ts"] * 1000), round(event["dur"] * 1000)
                rows.append(d.TraceRow(kind, str(event["name"]), tid, start, max(0, dur), int(args.get("correlation", 0))))
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
                continue
    rows.sort(key=lambda row: (row.start_ns, -row.dur_ns))
    return rows


def write_ops(session: str | os.PathLike[str], ops: d.Operators) -> None:
    rows = [[row.kind, row.name[:300], row.label[:300], row.calls, row.ns] for row in ops.rows[:_MOST_ROWS]]
    content = {"version": 1, "window_ns": ops.window_ns, "iterations": ops.iterations, "kernel_busy_ns": ops.kernel_busy_ns}
    write_json(str(Path(session, OPS_FILE)), content | {"rows": rows})


def read_ops(data: bytes) -> d.Operators | None:
    """What `write_ops` wrote; None where it is no such file."""
    try:
        said = json.loads(data)
        window, iterations, busy = (_number(said[name]) for name in ("window_ns", "iterations", "kernel_busy_ns"))
        rows = [_row(row) for row in said["rows"][:_MOST_ROWS]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return d.Operators(window, iterations, busy, tuple(rows))


def _row(row: Any) -> d.Operator:
    kind, name, label, calls, ns = row
    if kind not in (d.CPU_OP, d.KERNEL, d.COPY) or not isinstance(name, str) or not isinstance(label, str):
        raise ValueError("no operator")
    return d.Operator(kind, name, label, _number(calls), _number(ns))


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 60:
        raise ValueError("not a number that can be")
    return value
