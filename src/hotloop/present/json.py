"""A report as JSON-ready data. Keys are a contract: they may be added to, never dropped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..analyse.diagnosis import Diagnosis
from ..analyse.environments import Environment
from ..analyse.iterations import Iterations
from ..analyse.limits import verdict
from ..analyse.trend import Trend
from ..model import shard as m
from ..model.ledger import Balance
from ..model.phase import phase_name
from ..model.sheet import Sheet
from ..store.findings import finding_data
from .devices import device_data, operator_data, reads_data
from .tables import iteration_rows, line_rows, operation_rows, part_rows, phase_rows, pick, seconds

VERSION = 1
MOST_LINES = 500


def report_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """`hotloop report --json`."""
    q = diagnosis.quality
    return {
        "version": VERSION,
        "session": diagnosis.path,
        **pick(diagnosis, "name sps sps_latest learners counters resources"),
        **seconds(diagnosis, "wall loop"),
        "facts": diagnosis.facts,
        "coverage": diagnosis.numbers.coverage,
        "operations": [asdict(row) for row in operation_rows(diagnosis)],
        "waits": [asdict(row) for row in operation_rows(diagnosis, (m.WAIT,))],
        "garbage": [asdict(row) for row in operation_rows(diagnosis, (m.GARBAGE,))],
        "tree": _tree(diagnosis),
        "balance": _balance(diagnosis.sheet),
        "owners": {name: ns / 1e9 for name, ns in diagnosis.owners.items()},
        "findings": [finding_data(f) for f in diagnosis.findings],
        "phases": phases_data(diagnosis),
        "mechanisms": {name: ns / 1e9 for name, ns in diagnosis.limits.mechanisms.items()},
        "headroom": headroom_data(diagnosis),
        "probes": probes_data(diagnosis),
        "direct_coverage": diagnosis.numbers.measured_share,
        "inferred_share": diagnosis.numbers.inferred_share,
        "startup_s": diagnosis.phases.startup_ns / 1e9,
        "lines": [asdict(row) for row in line_rows(diagnosis)[:MOST_LINES]],
        "environments": [_environment(e) for e in diagnosis.environments],
        "stragglers": [_environment(e) for e in diagnosis.stragglers],
        "hooks": list(diagnosis.hooks),
        "device": device_data(diagnosis),
        "tensor_reads": reads_data(diagnosis),
        "operators": operator_data(diagnosis),
        "tracks": [_track(b, diagnosis) for b in diagnosis.ledger.balances],
        "processes": [pick(p, "pid name state") for p in diagnosis.processes],
        "iterations": {
            "closed": diagnosis.iterations_closed,
            **_history(diagnosis.iterations),
            "rows": [asdict(row) for row in iteration_rows(diagnosis)],
        },
        "quality": {
            **pick(q, "attempted recorded dropped losses own_cost_ns own_cost_error_ns profiler_share native memory_method"),
            **pick(q, "events_kept held_across_yield"),
            "open": q.open_spans,
            "died": list(q.died),
            "problems": list(q.problems),
        },
    }


def headroom_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """How many times as fast the loop could be: with learning unchanged, and with more samples per call."""
    limits = diagnosis.limits
    said, _ = verdict(limits, diagnosis.findings)
    return {
        "learning_unchanged": limits.headroom,
        "more_per_call": limits.batched,
        "minibatch": limits.minibatch,
        "verdict": said,
    }


def probes_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """What the script's own objects cost at other sizes, in seconds."""
    probes = diagnosis.session.probes
    return {
        "seconds": probes.seconds,
        "threads": probes.threads,
        "curves": [
            pick(c, "network method mean_rows rows grad parameter_bytes")
            | {
                "phase": phase_name(c.phase),
                "points": [[p.rows, p.ns / 1e9, p.spread_ns / 1e9] for p in c.points],
                "variants": {name: ns / 1e9 for name, ns in c.variants.items()},
            }
            for c in probes.curves
        ],
        "optimizers": [
            pick(o, "name tensors size_bytes")
            | {"s": o.ns / 1e9, "variants": {name: ns / 1e9 for name, ns in o.variants.items()}}
            for o in probes.optimizers
        ],
        "notes": list(probes.notes),
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
        pick(row, "name parent kind inferred waited ns calls busy_ns")
        | {"share": row.ns / sheet.wall_ns if sheet.wall_ns else 0.0}
        for row in sheet.rows
    ]


def _history(history: Iterations | None) -> dict[str, Any]:
    if history is None:
        return {}
    return {
        "percentiles_s": history.percentiles,
        "warm_up": pick(history.warm_up, "iterations seconds settled reason"),
        "trend": _trend(history.overall),
        "trends": [
            pick(t, "name calls_growth cost_growth share") | _trend(t.trend) for t in history.trends
        ],
        "changes": [{"iteration": c.iteration, "before_s": c.before, "after_s": c.after} for c in history.changes],
        "slowest": [
            {"iteration": x.number, "merged": x.merged, "seconds": x.seconds, "times_median": x.times_median,
             "excess_s": dict(x.excess), "balance": _balance(x.sheet)}
            for x in history.slowest
        ],
    }  # fmt: skip


def _trend(t: Trend) -> dict[str, Any]:
    return pick(t, "verdict growth growth_low growth_high p_value reason")


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
    process, exact = diagnosis.processes[b.shard], pick(b, "lifetime_ns exclusive_ns waiting_ns unattributed_ns profiler_ns")
    rounded = seconds(b, "lifetime exclusive waiting unattributed profiler inferred")
    return {"process": process.pid, "state": process.state, "name": b.name, **rounded, **exact}
