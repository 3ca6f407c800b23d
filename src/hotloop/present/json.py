"""A report as JSON-ready data. Keys are a contract: they may be added to, never dropped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..analyse.diagnosis import Diagnosis
from ..analyse.environments import Environment
from ..analyse.iterations import Iterations
from ..analyse.trend import Trend
from ..model import shard as m
from ..model.ledger import Balance
from ..model.sheet import Sheet
from ..store.findings import finding_data
from .devices import device_data, operator_data, reads_data
from .tables import iteration_rows, line_rows, operation_rows, part_rows, phase_rows

VERSION = 1
MOST_LINES = 500


def report_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """`hotloop report --json`."""
    q = diagnosis.quality
    return {
        "version": VERSION,
        "session": diagnosis.path,
        "name": diagnosis.name,
        "wall_s": diagnosis.wall_ns / 1e9,
        "loop_s": diagnosis.loop_ns / 1e9,
        "coverage": diagnosis.numbers.coverage,
        "sps": diagnosis.sps,
        "sps_latest": diagnosis.sps_latest,
        "learners": diagnosis.learners,
        "counters": diagnosis.counters,
        "operations": [asdict(row) for row in operation_rows(diagnosis)],
        "waits": [asdict(row) for row in operation_rows(diagnosis, (m.WAIT,))],
        "garbage": [asdict(row) for row in operation_rows(diagnosis, (m.GARBAGE,))],
        "tree": _tree(diagnosis),
        "balance": _balance(diagnosis.sheet),
        "owners": {name: ns / 1e9 for name, ns in diagnosis.owners.items()},
        "findings": [finding_data(f) for f in diagnosis.findings],
        "phases": phases_data(diagnosis),
        "direct_coverage": diagnosis.numbers.measured_share,
        "inferred_share": diagnosis.numbers.inferred_share,
        "startup_s": diagnosis.phases.startup_ns / 1e9,
        "lines": [asdict(row) for row in line_rows(diagnosis)[:MOST_LINES]],
        "environments": [_environment(e) for e in diagnosis.environments],
        "stragglers": [_environment(e) for e in diagnosis.stragglers],
        "hooks": list(diagnosis.hooks),
        "resources": diagnosis.resources,
        "device": device_data(diagnosis),
        "tensor_reads": reads_data(diagnosis),
        "operators": operator_data(diagnosis),
        "tracks": [_track(b, diagnosis) for b in diagnosis.ledger.balances],
        "processes": [{"pid": p.pid, "name": p.name, "state": p.state} for p in diagnosis.processes],
        "iterations": {
            "closed": diagnosis.iterations_closed,
            **_history(diagnosis.iterations),
            "rows": [asdict(row) for row in iteration_rows(diagnosis)],
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


def phases_data(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Of the training loop, largest first; `waiting_s` is part of `direct_s`, and the parts add up to their phase."""
    parts = part_rows(diagnosis)
    return [
        asdict(row) | {"parts": [asdict(part) for part in parts if part.phase == row.phase]} for row in phase_rows(diagnosis)
    ]


def _environment(e: Environment) -> dict[str, Any]:
    return {"name": e.name, "process": e.shard, "track": e.track, "steps": e.steps, "step_s": e.step_ns / 1e9}


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


def _tree(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """The calling tree over all tracks, in thread-time: `total_s` of a branch is its own plus its children's."""
    nodes: list[dict[str, Any]] = []
    roots: list[dict[str, Any]] = []
    totals = [branch.self_ns for branch in diagnosis.ledger.tree]
    for i in range(len(totals) - 1, -1, -1):
        parent = diagnosis.ledger.tree[i].parent
        if parent >= 0:
            totals[parent] += totals[i]
    for i, branch in enumerate(diagnosis.ledger.tree):
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


def _track(b: Balance, diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "process": diagnosis.processes[b.shard].pid,
        "state": diagnosis.processes[b.shard].state,
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
