"""An analysis as detailed JSON, and a session in the shape of its `profiling_report.json`.

Keys are a contract: they may be added to, never dropped.
"""

from __future__ import annotations

import time
from typing import Any

from ..analyse.bottlenecks import Analysis, Bottleneck, Category
from ..analyse.diagnosis import Diagnosis, Quality
from ..printing.summary import books_data, readings_data
from ..printing.text import escape
from ..store.findings import finding_data
from .json import phases_data
from .tables import pick


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
                    **pick(a.operation, "name category"),
                    "levels": list(a.operation.levels),
                    "gain_percent": a.gain_percent,
                    "text": a.text,
                }
                for a in analysis.advice
            ],
            "problems": list(analysis.listing.problems),
        },
        "raw_data": raw_data,
    }


def _bottleneck(b: Bottleneck) -> dict[str, Any]:
    return {
        **pick(b, "name score time_percent avg_time_ms call_count category own_percent"),
        "memory_peak_mb": b.memory_peak_mb or 0.0,
        "gpu_memory_peak_mb": b.gpu_memory_peak_mb or 0.0,
        "levels": list(b.levels),
        "total_time": b.total_s,
        "memory_measured": b.memory_peak_mb is not None,
    }


def _category(c: Category) -> dict[str, Any]:
    return {"total_time": c.time_s, "time_percent": c.percent, "operations": c.operations, "waiting_percent": c.waiting_percent}


def session_report(diagnosis: Diagnosis) -> dict[str, Any]:
    """A session's `profiling_report.json`, over all its processes."""
    shown = diagnosis.user_operations
    q = diagnosis.quality
    return {
        "timestamp": _timestamp(diagnosis.end_unix_ns),
        "summary": {
            "total_operations": len(shown),
            **books_data(diagnosis.ledger, diagnosis.sheet, shown),
            "wall_time": diagnosis.wall_ns / 1e9,
            "coverage": diagnosis.numbers.coverage,
            **pick(diagnosis, "sps sps_latest counters"),
            "iterations": diagnosis.iterations_closed,
            "loop_time": diagnosis.loop_ns / 1e9,
            "startup_time": diagnosis.phases.startup_ns / 1e9,
            "direct_coverage": diagnosis.numbers.measured_share,
            "phases": {escape(row["phase"]): row for row in phases_data(diagnosis)},
            "findings": [finding_data(f) for f in diagnosis.findings],
            "lower_bounds": sum(o.union_high_ns > o.union_ns for o in shown),
            "problems": [escape(text) for text in (*_odd(q), *q.problems)],
            "quality": {
                **pick(q, "losses own_cost_error_ns profiler_share native memory_method"),
                "own_cost_ns_per_span": q.own_cost_ns,
                "held_across_yield": {escape(name): site for name, site in q.held_across_yield.items()},
            },
        },
        "memory_snapshots": readings_data(diagnosis.memory_readings),
    }


def _odd(q: Quality) -> list[str]:
    return [
        *(f"process {pid} died; what it had recorded is included" for pid in q.died),
        *(
            f"'{name}' is held across a yield ({site}): use @profile_function on the generator"
            for name, site in q.held_across_yield.items()
        ),
    ]


def _timestamp(unix_ns: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(unix_ns / 1e9))
    except (OverflowError, ValueError, OSError):  # a damaged file may claim any date
        return ""
