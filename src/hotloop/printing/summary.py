"""What the training process itself prints and saves: a standard-library table over the recorder's own aggregates.

What lives here: the summary table and JSON, filled from one decoded shard. Who may touch it: `api`. No NumPy, no rich.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from ..model import shard as m
from ..model.ledger import Ledger, MemoryReading, Operation, fold, list_readings, memory_method, windowed_rate
from ..model.listing import Books, Own, share_out_own_times
from ..model.numbers import measure_loop, rate_of, take_numbers
from ..model.sheet import Sheet, make_sheet
from .text import escape, join, losses_text, own_cost_text, shorten, terminal_width

MB = 1 << 20


class Summary:
    """The numbers of this process so far."""

    def __init__(self, shard: m.Shard) -> None:
        self.shard = shard
        self.ledger: Ledger = fold([shard])
        self.operations = [o for o in self.ledger.operations if o.kind in (m.USER, m.OVERFLOW) and (o.calls or o.open)]
        main = self.ledger.balances[0] if self.ledger.balances else None
        self.wall_ns = main.lifetime_ns if main else 0
        self.numbers = take_numbers(self.ledger)
        self.loop_ns = measure_loop(shard, self.numbers)
        lifetimes_ns = sum(b.lifetime_ns for b in self.ledger.balances)
        self.profiler_share = sum(b.profiler_ns for b in self.ledger.balances) / lifetimes_ns if lifetimes_ns else 0.0
        self.own_cost_ns = (shard.cost_inside_ps + shard.cost_outside_ps) / 1000
        self.sps = rate_of(shard.counters.get("env_steps", 0), self.loop_ns)
        self.sps_latest = windowed_rate(shard.iterations, "env_steps")

    def as_dict(self) -> dict[str, Any]:
        """The report's `summary`."""
        return {
            "total_operations": len(self.operations),
            **books_data(
                self.ledger, make_sheet(self.ledger, self.ledger.balances[0]) if self.ledger.balances else None, self.operations
            ),
            "wall_time": self.wall_ns / 1e9,
            "coverage": self.numbers.coverage,
            "sps": self.sps,
            "sps_latest": self.sps_latest,
            "counters": self.shard.counters,
            "iterations": self.shard.iterations_closed,
            "quality": self.quality(),
        }

    def report(self) -> dict[str, Any]:
        """`profiling_report.json`."""
        return {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "summary": self.as_dict(),
            "memory_snapshots": readings_data(list_readings(self.shard)),
        }

    def quality(self) -> dict[str, Any]:
        shard = self.shard
        return {
            "losses": shard.losses,
            "own_cost_ns_per_span": self.own_cost_ns,
            "own_cost_error_ns": shard.cost_error_ps / 1000,
            "profiler_share": self.profiler_share,
            "native": shard.native,
            "memory_method": memory_method(shard, self.operations),
            "held_across_yield": {escape(x.name): x.held_across_yield for x in shard.labels if x.held_across_yield},
        }

    def text(self, width: int | None = None) -> str:
        """The table and what to think of it."""
        width = width or terminal_width()
        rows = table(self.operations, self.wall_ns, width)
        return "\n".join(["PROFILING SUMMARY", *rows, join(self._footer(), width), join(self._quality(), width)])

    def _footer(self) -> list[str]:
        parts = [f"wall {self.wall_ns / 1e9:.3f} s", f"coverage {self.numbers.coverage:.1%}"]
        if self.shard.iterations_closed:
            parts.append(f"iterations {self.shard.iterations_closed:,}")
        if self.sps is not None:
            parts.append(f"SPS {self.sps:,.1f}")
        if self.sps_latest is not None:
            parts.append(f"latest SPS {self.sps_latest:,.1f}")
        return parts

    def _quality(self) -> list[str]:
        shard = self.shard
        cost = own_cost_text(self.own_cost_ns, shard.cost_error_ps / 1000, self.profiler_share)
        parts = ["quality: " + losses_text(shard.losses), cost]
        if any(o.peak_readings or o.end_readings for o in self.operations):
            parts.append(f"memory: {memory_method(shard, self.operations)}")
        held = [escape(x.name) for x in shard.labels if x.held_across_yield]
        if held:
            parts.append(f"held across a yield: {', '.join(held[:3])}")
        return parts


COLUMNS = (
    "Calls", "Total(s)", "Avg(s)", "Min(s)", "Max(s)", "Mem Peak(MB)", "GPU Peak(MB)",  # the first seven are a contract
    "Wall%", "Busy(s)", "Union(s)", "Conc", "p95(s)",
)  # fmt: skip


def table(operations: Sequence[Operation], wall_ns: int, width: int) -> list[str]:
    """The summary table; where the terminal is narrow, in as many parts as it takes."""
    names = [shorten(escape(o.name), min(40, max(12, width // 3))) for o in operations]
    cells = [_cells(o, wall_ns) for o in operations]
    label = max([len(n) for n in names] + [9])
    parts: list[list[str]] = [[]]
    for column in COLUMNS:
        if parts[-1] and _needs(label, [*parts[-1], column], cells) > width:
            parts.append([])
        parts[-1].append(column)
    lines: list[str] = []
    for heads in parts:
        lines += _part(names, heads, cells, label)
    return [*lines, lines[0]]


def books_data(ledger: Ledger, sheet: Sheet | None, operations: Sequence[Operation]) -> dict[str, Any]:
    """The report's `operations`, with what each holds of the wall time, and the wall time that no operation works in."""
    own, books = share_out_own_times(sheet, ledger.tree) if sheet else ({}, Books(0.0, 0.0, 0.0))
    rows: dict[str, Any] = {}
    for o in operations:
        name, number = escape(o.name), 1
        while name in rows:  # two labels may look the same once escaped; neither may hide the other
            number += 1
            name = f"{escape(o.name)} ({number})"
        rows[name] = _row(o, sheet.wall_ns if sheet else 0, own.get((o.name, o.kind), Own()))
    return {"operations": rows, **{name.removesuffix("s") + "time": s for name, s in asdict(books).items()}}


def readings_data(readings: Iterable[MemoryReading]) -> list[dict[str, Any]]:
    return [
        {
            "time": x.time_s,
            "operation": escape(x.operation),
            "memory_mb": x.rss_bytes / MB,
            "memory_peak_mb": x.peak_bytes / MB,
            "gpu_memory_mb": 0.0,
        }
        for x in readings
    ]


def _row(o: Operation, wall_ns: int, own: Own) -> dict[str, Any]:
    return {
        "total_time": o.busy_ns / 1e9,
        "call_count": o.calls,
        "avg_time": o.mean_ns / 1e9,
        "min_time": o.min_ns / 1e9,
        "max_time": o.max_ns / 1e9,
        "memory_peak_mb": o.rise_max_bytes / MB,
        "memory_avg_mb": o.rise_mean_bytes / MB,
        "gpu_memory_peak_mb": o.gpu_peak_bytes / MB,
        "gpu_memory_avg_mb": o.gpu_peak_bytes / MB,
        "self_time": o.self_ns / 1e9,
        "wall_self_time": own.self_s,
        "wall_waiting_time": own.waiting_s,
        "wall_outside_time": own.outside_s,
        "union_time": o.union_ns / 1e9,
        "share": min(1.0, o.union_ns / wall_ns) if wall_ns else 0.0,
        "concurrency": o.concurrency,
        "p50_time": o.percentile_ns(0.5) / 1e9,
        "p95_time": o.percentile_ns(0.95) / 1e9,
        "p99_time": o.percentile_ns(0.99) / 1e9,
        "memory_method": "peak" if o.peak_readings else "end points" if o.end_readings else "",
    }


def _cells(o: Operation, wall_ns: int) -> dict[str, str]:
    measured = o.peak_readings or o.end_readings
    return {
        "Calls": f"{o.calls:,}" + (f"+{o.open} open" if o.open else ""),
        "Total(s)": f"{o.busy_ns / 1e9:.3f}",
        "Avg(s)": f"{o.mean_ns / 1e9:.6f}",
        "Min(s)": f"{o.min_ns / 1e9:.6f}",
        "Max(s)": f"{o.max_ns / 1e9:.6f}",
        "Mem Peak(MB)": ("" if o.peak_readings else "~") + f"{o.rise_max_bytes / MB:.1f}" if measured else "-",
        "GPU Peak(MB)": f"{o.gpu_peak_bytes / MB:.1f}" if o.gpu_peak_bytes else "-",
        "Wall%": f"{o.union_ns / wall_ns * 100 if wall_ns else 0.0:.1f}",
        "Busy(s)": f"{o.busy_ns / 1e9:.3f}",
        "Union(s)": f"{o.union_ns / 1e9:.3f}",
        "Conc": f"{o.concurrency:.2f}",
        "p95(s)": f"{o.percentile_ns(0.95) / 1e9:.6f}",
    }


def _sizes(heads: Sequence[str], cells: list[dict[str, str]]) -> list[int]:
    return [max([len(h)] + [len(row[h]) for row in cells]) for h in heads]


def _needs(label: int, heads: Sequence[str], cells: list[dict[str, str]]) -> int:
    return label + sum(_sizes(heads, cells)) + 2 * len(heads)


def _part(names: list[str], heads: Sequence[str], cells: list[dict[str, str]], label: int) -> list[str]:
    sizes = _sizes(heads, cells)
    rule = "-" * _needs(label, heads, cells)
    lines = [rule, "Operation".ljust(label) + "".join("  " + h.rjust(w) for h, w in zip(heads, sizes, strict=True)), rule]
    for name, row in zip(names, cells, strict=True):
        lines.append(name.ljust(label) + "".join("  " + row[h].rjust(w) for h, w in zip(heads, sizes, strict=True)))
    return lines
