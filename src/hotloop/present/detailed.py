"""An analysis as seed 000's detailed JSON, and a session in the shape of its `profiling_report.json`.

Keys are a contract: they may be added to, never dropped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..analyse.bottlenecks import Analysis, Bottleneck, Category
from ..analyse.report import Report
from ..model import shard as m
from ..model.finding import Finding
from ..model.session import SessionData
from ..record.summary import books_data, escape, snapshot_data
from ..store.findings import finding_data
from .json import phases_data


def detailed_data(analysis: Analysis, raw_data: dict[str, Any]) -> dict[str, Any]:
    """`hotloop analyze --detailed`."""
    return {
        "summary": {
            "total_operations": len(analysis.listing.entries),
            "total_time": analysis.base_s,
            "time_base": "wall" if analysis.ours else "sum of operations",
            "wall_time": analysis.listing.wall_s,
            "coverage": analysis.listing.coverage,
            "min_calls": analysis.min_calls,
            "bottlenecks": [_bottleneck(b) for b in analysis.bottlenecks],
            "rare": [_bottleneck(b) for b in analysis.rare],
            "categories": {c.name: _category(c) for c in analysis.categories},
            "beside": {c.name: _category(c) for c in analysis.beside},
            "recommendations": [
                {
                    "name": a.operation.name,
                    "category": a.operation.category,
                    "levels": list(a.operation.levels),
                    "gain_percent": a.gain_percent,
                    "text": " ".join(a.sentences),
                }
                for a in analysis.advice
            ],
            "problems": list(analysis.listing.problems),
        },
        "raw_data": raw_data,
    }


def _bottleneck(b: Bottleneck) -> dict[str, Any]:
    return {
        "name": b.name,
        "score": b.score,
        "time_percent": b.time_percent,
        "avg_time_ms": b.avg_time_ms,
        "call_count": b.call_count,
        "memory_peak_mb": b.memory_peak_mb or 0.0,
        "gpu_memory_peak_mb": b.gpu_memory_peak_mb or 0.0,
        "levels": list(b.levels),
        "category": b.category,
        "total_time": b.total_s,
        "own_percent": b.own_percent,
        "memory_measured": b.memory_peak_mb is not None,
    }


def _category(c: Category) -> dict[str, Any]:
    return {"total_time": c.time_s, "time_percent": c.percent, "operations": c.operations, "waiting_percent": c.waiting_percent}


def session_report(session: SessionData, report: Report, findings: Sequence[Finding] | None = None) -> dict[str, Any]:
    """A session's `profiling_report.json`, over all its processes."""
    shown = report.user_operations
    q = report.quality
    return {
        "timestamp": _timestamp(session.shards[0]),
        "summary": {
            "total_operations": len(shown),
            **books_data(report.ledger, report.sheet, shown),
            "wall_time": report.wall_ns / 1e9,
            "coverage": report.numbers.coverage,
            "sps": report.sps,
            "sps_latest": report.sps_latest,
            "counters": report.counters,
            "iterations": report.iterations_closed,
            "loop_time": report.loop_ns / 1e9,
            "startup_time": report.phases.startup_ns / 1e9,
            "direct_coverage": report.numbers.measured_share,
            "phases": {escape(row["phase"]): row for row in phases_data(report)},
            "findings": None if findings is None else [finding_data(f) for f in findings],
            "quality": {
                "losses": q.losses,
                "own_cost_ns_per_span": q.own_cost_ns,
                "own_cost_error_ns": q.own_cost_error_ns,
                "profiler_share": q.profiler_share,
                "native": q.native,
                "memory_method": q.memory_method,
                "held_across_yield": {escape(name): site for name, site in q.held_across_yield.items()},
            },
        },
        "memory_snapshots": [row for shard in session.shards for row in snapshot_data(shard)],
    }


def _timestamp(main: m.Shard) -> str:
    """When the recording ended, or was last written."""
    seconds = (main.start_unix_ns + max(0, main.end_ns - main.start_ns)) / 1e9
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # a damaged file may claim any date
        return ""
