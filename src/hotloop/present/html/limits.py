"""Limits as the page shows them: what each phase is spent on and what would be left of it, and what was measured after the run.

What lives here: selection, rounding and wording, no markup. Invariants: every text went through `show`; the mechanisms' shares
are whole tenths of a percent and add up to 100 % of their phase; curves and optimizers beyond a limit are counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...analyse.diagnosis import Diagnosis
from ...analyse.limits import Limit
from ...model.phase import phase_name
from ...model.probe import Curve, OptimizerCost, Point
from ..loop import NO_PHASE
from ..opening import headroom_text, limit_rows
from ..tables import pick
from ..units import count_text, duration_text, round_parts
from .names import show
from .series import round_number

_MOST = 12  # curves, and optimizers
_TIMES = (8, 16)  # rows of the run that the sentence compares with, the first that was measured


def limits_data(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """None where there is no phase to speak of."""
    rows = limit_rows(diagnosis) if diagnosis.phases.known else []
    if not rows:
        return None
    probes = diagnosis.session.probes
    return {
        "said": show(headroom_text(diagnosis), 300),
        "spent": _spent(diagnosis.limits.mechanisms),
        "rows": [_row(row) for row in rows],
        "more_rows": len(diagnosis.limits.phases) - len(rows),
        "curves": [_curve(curve) for curve in probes.curves[:_MOST]],
        "more_curves": max(0, len(probes.curves) - _MOST),
        "optimizers": [show(_say_optimizer(cost), 400) for cost in probes.optimizers[:_MOST]],
        "more_optimizers": max(0, len(probes.optimizers) - _MOST),
    }


def _row(row: Limit) -> dict[str, Any]:
    return {
        "name": show(row.name or NO_PHASE, 200),
        **pick(row, "ns limit_ns batched_ns"),
        "headroom": round_number(row.headroom, 4),
        "spent": _spent(row.mechanisms),
    }


def _spent(mechanisms: Mapping[str, int]) -> list[list[Any]]:
    """Name, nanoseconds, share."""
    shares = round_parts(list(mechanisms.values()))
    return [[name, ns, share] for (name, ns), share in zip(mechanisms.items(), shares, strict=True)]


def _curve(curve: Curve) -> dict[str, Any]:
    return {
        "name": show(f"{curve.network}.{curve.method}" if curve.method else curve.network, 200),
        "phase": show(phase_name(curve.phase) or NO_PHASE, 200),
        "points": [[p.rows, round(p.ns), round(p.spread_ns)] for p in curve.points],
        "now": next((i for i, p in enumerate(curve.points) if p.rows == curve.rows), -1),  # where the run is
        "said": show(_say_curve(curve), 200),
    }


def _say_curve(curve: Curve) -> str:
    by_rows = {p.rows: p for p in curve.points}
    now = by_rows.get(curve.rows, curve.points[0])
    more = next((by_rows[n] for n in (k * curve.rows for k in _TIMES) if n in by_rows), curve.points[-1])
    than = f"; {_rows(more)} cost {duration_text(round(more.ns))}" if more.rows > now.rows else ""
    how = " (with its backward pass)" if curve.grad else ""
    return f"{duration_text(round(now.ns))} for {_rows(now)}{than}{how}"


def _rows(point: Point) -> str:
    return f"{count_text(point.rows)} row{'s' * (point.rows != 1)}"


def _say_optimizer(cost: OptimizerCost) -> str:
    times = [f"{duration_text(round(cost.ns))}{' as it is' if cost.variants else ''}"]
    times += [f"{duration_text(round(ns))} with {name}=True" for name, ns in cost.variants.items()]
    tensors = f"{count_text(cost.tensors)} tensor{'s' * (cost.tensors != 1)}"
    return f"{cost.name}: a step over {tensors} takes {', '.join(times)}"
