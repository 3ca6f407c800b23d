"""A report as JSON-ready data. Keys are a contract: they may be added to, never dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..analyse.environments import Environment
from ..analyse.iterations import Iterations
from ..analyse.lines import Line
from ..analyse.report import Report
from ..analyse.trend import Trend
from ..model import shard as m
from ..model.finding import Finding
from ..model.ledger import Balance, Operation
from ..model.phase import phase_name
from ..model.session import Source
from ..model.sheet import Sheet
from ..store.findings import finding_data
from .devices import device_data, operator_data, reads_data
from .phases import NO_PHASE, list_parts, text_of

VERSION = 1
MB = 1 << 20
MOST_LINES = 500


def report_data(
    report: Report,
    history: Iterations | None = None,
    findings: Sequence[Finding] | None = None,
    sources: Mapping[str, Source] | None = None,
) -> dict[str, Any]:
    """`hotloop report --json`. `findings` is null where nobody looked for any."""
    q = report.quality
    return {
        "version": VERSION,
        "session": report.path,
        "name": report.name,
        "wall_s": report.wall_ns / 1e9,
        "loop_s": report.loop_ns / 1e9,
        "coverage": report.numbers.coverage,
        "sps": report.sps,
        "sps_latest": report.sps_latest,
        "learners": report.learners,
        "counters": report.counters,
        "operations": [_operation(o, report.wall_ns) | {"site": report.sites.get(o.name)} for o in report.user_operations],
        "waits": [_operation(o, report.wall_ns) for o in report.operations if o.kind == m.WAIT and o.calls],
        "garbage": [_operation(o, report.wall_ns) for o in report.operations if o.kind == m.GARBAGE and o.calls],
        "tree": _tree(report),
        "balance": _balance(report.sheet),
        "owners": {name: ns / 1e9 for name, ns in report.owners.items()},
        "findings": None if findings is None else [finding_data(f) for f in findings],
        "phases": phases_data(report),
        "direct_coverage": report.numbers.measured_share,
        "inferred_share": report.numbers.inferred_share,
        "startup_s": report.phases.startup_ns / 1e9,
        "lines": [_line(line, sources) for line in report.lines[:MOST_LINES]],
        "environments": [_environment(e) for e in report.environments],
        "stragglers": [_environment(e) for e in report.stragglers],
        "hooks": list(report.hooks),
        "resources": report.resources,
        "device": device_data(report),
        "tensor_reads": reads_data(report),
        "operators": operator_data(report),
        "tracks": [_track(b, report) for b in report.ledger.balances],
        "processes": [{"pid": p.pid, "name": p.name, "state": p.state} for p in report.processes],
        "iterations": {
            "closed": report.iterations_closed,
            **_history(history),
            "rows": [
                {
                    "first": row.first,
                    "merged": row.merged,
                    "start_s": (row.start_ns - report.iterations[0].start_ns) / 1e9,
                    "duration_s": (row.end_ns - row.start_ns) / 1e9,
                    "counts": row.counts,
                }
                for row in report.iterations
            ],
        },
        "quality": {
            "attempted": q.attempted,
            "recorded": q.recorded,
            "open": q.open_spans,
            "dropped": q.dropped,
            "losses": q.losses,
            "own_cost_ns": q.own_cost_ns,
            "own_cost_error_ns": q.own_cost_error_ns,
            "profiler_share": q.profiler_share,
            "native": q.native,
            "memory_method": q.memory_method,
            "events_kept": q.events_kept,
            "held_across_yield": q.held_across_yield,
            "died": list(q.died),
            "problems": list(q.problems),
        },
    }


def phases_data(report: Report) -> list[dict[str, Any]]:
    """Of the training loop, largest first; `waiting_s` is part of `direct_s`, and the parts add up to their phase."""
    loop = report.phases.loop_ns
    parts = {row.name: row.parts for row in list_parts(report) if not row.kind}
    return [
        {
            "phase": phase_name(p.code) or "none",
            "direct_s": p.direct_ns / 1e9,
            "inferred_s": p.inferred_ns / 1e9,
            "waiting_s": p.waiting_ns / 1e9,
            "share": p.total_ns / loop if loop else 0.0,
            "parts": [
                {
                    "name": part.name,
                    "inferred": part.inferred_ns > 0,
                    "total_s": part.ns / 1e9,
                    "waiting_s": part.waiting_ns / 1e9,
                    "share": part.ns / loop if loop else 0.0,
                }
                for part in parts.get(phase_name(p.code) or NO_PHASE, ())
            ],
        }
        for p in report.phases.phases
    ]


def _environment(e: Environment) -> dict[str, Any]:
    return {"name": e.name, "process": e.shard, "track": e.track, "steps": e.steps, "step_s": e.step_ns / 1e9}


def _line(line: Line, sources: Mapping[str, Source] | None) -> dict[str, Any]:
    return {
        "file": line.file,
        "line": line.line,
        "function": line.function,
        "first_line": line.first_line,
        "phase": phase_name(line.phase) or "none",
        "span": line.span,
        "samples": line.samples,
        "share": line.share,
        "process": line.shard,
        "track": line.track,
        "inner": line.inner,
        "text": text_of(sources, line),
    }


def _balance(sheet: Sheet | None) -> list[dict[str, Any]]:
    """The balance sheet, parents first; `ns` of a row is the sum of the rows whose parent it is."""
    if sheet is None:
        return []
    return [
        {
            "name": row.name,
            "parent": row.parent,
            "kind": row.kind,
            "inferred": row.inferred,
            "waited": row.waited,
            "ns": row.ns,
            "share": row.ns / sheet.wall_ns if sheet.wall_ns else 0.0,
            "calls": row.calls,
            "busy_ns": row.busy_ns,
        }
        for row in sheet.rows
    ]


def _history(history: Iterations | None) -> dict[str, Any]:
    if history is None:
        return {}
    warm_up = history.warm_up
    return {
        "percentiles_s": history.percentiles,
        "warm_up": {
            "iterations": warm_up.iterations,
            "seconds": warm_up.seconds,
            "settled": warm_up.settled,
            "reason": warm_up.reason,
        },
        "trend": _trend(history.overall),
        "trends": [
            {"name": t.name, **_trend(t.trend), "calls_growth": t.calls_growth, "cost_growth": t.cost_growth, "share": t.share}
            for t in history.trends
        ],
        "changes": [{"iteration": c.iteration, "before_s": c.before, "after_s": c.after} for c in history.changes],
        "slowest": [
            {"iteration": x.number, "merged": x.merged, "seconds": x.seconds, "times_median": x.times_median,
             "excess_s": dict(x.excess), "balance": _balance(x.sheet)}
            for x in history.slowest
        ],
    }  # fmt: skip


def _trend(t: Trend) -> dict[str, Any]:
    return {
        "verdict": t.verdict, "growth": t.growth, "growth_low": t.growth_low, "growth_high": t.growth_high,
        "p_value": t.p_value, "reason": t.reason,
    }  # fmt: skip


def _operation(o: Operation, wall_ns: int) -> dict[str, Any]:
    return {
        "name": o.name,
        "calls": o.calls,
        "open": o.open,
        "total_s": o.busy_ns / 1e9,
        "self_s": o.self_ns / 1e9,
        "waiting_s": o.waiting_ns / 1e9,
        "min_s": o.min_ns / 1e9,
        "max_s": o.max_ns / 1e9,
        "p50_s": o.percentile_ns(0.5) / 1e9,
        "p95_s": o.percentile_ns(0.95) / 1e9,
        "p99_s": o.percentile_ns(0.99) / 1e9,
        "share": min(1.0, o.union_ns / wall_ns) if wall_ns else 0.0,
        "busy_s": o.busy_ns / 1e9,
        "union_s": o.union_ns / 1e9,
        "union_high_s": o.union_high_ns / 1e9,
        "union_exact": o.union_high_ns == o.union_ns,
        "concurrency": o.concurrency,
        "cpu_share": o.cpu_ns / o.cpu_wall_ns if o.cpu_wall_ns else None,
        "memory_peak_mb": o.rise_max_bytes / MB if o.peak_readings or o.end_readings else None,
        "memory_method": "peak" if o.peak_readings else "end points" if o.end_readings else None,
        "gpu_peak_mb": o.gpu_peak_bytes / MB if o.gpu_peak_bytes else None,
    }


def _tree(report: Report) -> list[dict[str, Any]]:
    """The calling tree over all tracks, in thread-time: `total_s` of a branch is its own plus its children's."""
    nodes: list[dict[str, Any]] = []
    roots: list[dict[str, Any]] = []
    totals = [branch.self_ns for branch in report.ledger.tree]
    for i in range(len(totals) - 1, -1, -1):
        parent = report.ledger.tree[i].parent
        if parent >= 0:
            totals[parent] += totals[i]
    for i, branch in enumerate(report.ledger.tree):
        node = {
            "name": branch.name,
            "kind": m.KIND_NAMES[branch.kind],
            "calls": branch.calls,
            "self_s": branch.self_ns / 1e9,
            "total_s": totals[i] / 1e9,
            "children": [],
        }
        nodes.append(node)
        (roots if branch.parent < 0 else nodes[branch.parent]["children"]).append(node)
    return roots


def _track(b: Balance, report: Report) -> dict[str, Any]:
    return {
        "process": report.processes[b.shard].pid,
        "state": report.processes[b.shard].state,
        "name": b.name,
        "lifetime_s": b.lifetime_ns / 1e9,
        "exclusive_s": b.exclusive_ns / 1e9,
        "waiting_s": b.waiting_ns / 1e9,
        "unattributed_s": b.unattributed_ns / 1e9,
        "inferred_s": b.inferred_ns / 1e9,
        "profiler_s": b.profiler_ns / 1e9,
        "lifetime_ns": b.lifetime_ns,
        "exclusive_ns": b.exclusive_ns,
        "waiting_ns": b.waiting_ns,
        "unattributed_ns": b.unattributed_ns,
        "profiler_ns": b.profiler_ns,
    }
