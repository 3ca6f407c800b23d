"""`probes.json`: what the script's own objects cost at other sizes. Standard library only.

What lives here: its name, and reading it. Invariant: numbers that make no sense are left out, whoever wrote the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..model.probe import Curve, OptimizerCost, Point, Probes

PROBES_FILE = "probes.json"
VERSION = 1
MOST_BYTES = 1 << 20
_MOST = 64
_MOST_NS = 1e13


def read_probes(data: bytes) -> Probes:
    """From the file's bytes; nothing where they are no such file."""
    try:
        said = json.loads(data[:MOST_BYTES])
        curves = [_curve(row) for row in said["curves"][:_MOST]]
        optimizers = [_optimizer(row) for row in said["optimizers"][:_MOST]]
        notes = tuple(str(note)[:200] for note in said["notes"][:_MOST])
        return Probes(
            tuple(c for c in curves if c.points), tuple(o for o in optimizers if o.ns), _whole(said["threads"]),
            _number(said["seconds"]), notes,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return Probes()


def _curve(row: Mapping[str, Any]) -> Curve:
    points: list[Point] = []
    for rows, ns, spread in row["points"][:_MOST]:
        if _whole(rows) > (points[-1].rows if points else 0) and _number(ns):
            points.append(Point(_whole(rows), _number(ns), _number(spread)))
    return Curve(
        str(row["network"])[:200], str(row["method"])[:200], _whole(row["phase"]), max(1, _whole(row["rows"])),
        _number(row["mean_rows"]), _whole(row["seen"]), row["grad"] is True, _whole(row["parameters"]), tuple(points),
        _variants(row),
    )  # fmt: skip


def _optimizer(row: Mapping[str, Any]) -> OptimizerCost:
    return OptimizerCost(
        str(row["name"])[:200], _whole(row["tensors"]), _whole(row["bytes"]), _number(row["ns"][0]), _variants(row)
    )


def _variants(row: Mapping[str, Any]) -> dict[str, float]:
    return {str(name)[:50]: _number(ns[0]) for name, ns in list(row["variants"].items())[:_MOST] if _number(ns[0])}


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) and 0 <= value < _MOST_NS else 0.0


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 48 else 0
