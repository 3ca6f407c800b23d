"""The ledger of predictions: what the baseline's findings promised, beside what was measured.

What lives here: `findings.json` of the baseline (which anyone may have written) and a comparison in, one row per finding out. A
finding counts as acted on where the time in and below its span fell; the measured gain is that of the whole change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import stats
from .compare import LEAST_RUNS, Comparison
from .stats import Interval

MOST = 50


@dataclass(frozen=True, slots=True)
class Prediction:
    cause: str
    title: str
    span: str
    speedup: Interval


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction and what came of it."""

    prediction: Prediction
    actual: Interval
    acted_on: bool
    held: bool | None  # do the two intervals overlap? None while it is open


def read_predictions(findings: Any) -> tuple[Prediction, ...]:
    """The predictions in a `findings.json`; what does not look like one is passed over.

    >>> data = {"findings": [{"cause": "x", "predicted_speedup": {"low": 1.5, "mid": 2.0, "high": 3}}, 7]}
    >>> read_predictions(data)[0].speedup
    Interval(mid=2.0, low=1.5, high=3.0)
    """
    found = findings.get("findings") if isinstance(findings, dict) else None
    out = []
    for item in found[:MOST] if isinstance(found, list) else []:
        said = item.get("predicted_speedup") if isinstance(item, dict) else None
        if not isinstance(said, dict):
            continue
        mid, low, high = (_number(said.get(key)) for key in ("mid", "low", "high"))
        if mid is not None and low is not None and high is not None:
            cause, title, span = (item[key] if isinstance(item.get(key), str) else "" for key in ("cause", "title", "span"))
            out.append(Prediction(cause, title, span, Interval(mid, low, high)))
    return tuple(out)


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) and value > 0 else None


def judge_predictions(predictions: Sequence[Prediction], comparison: Comparison) -> tuple[Outcome, ...]:
    """Only where both sides ran the same script: otherwise the findings speak of another program."""
    if {run.script for run in comparison.a} != {run.script for run in comparison.b}:
        return ()
    actual = comparison.speedup
    out = []
    for prediction in predictions:
        acted_on = _has_fallen(prediction.span, comparison)
        low, high = prediction.speedup.low, prediction.speedup.high
        held = None
        if acted_on and None not in (actual.low, actual.high, low, high):
            held = bool(actual.low <= high and low <= actual.high)  # type: ignore[operator]
        out.append(Outcome(prediction, actual, acted_on, held))
    return tuple(out)


def _has_fallen(span: str, c: Comparison) -> bool:
    """Does a unit of work take less time in this span? `collect/env_step` may also be a span of the user's own, `env_step`."""
    runs = (*c.a, *c.b)
    name = next((x for x in (span, span.rpartition("/")[2]) if any(x in run.spans for run in runs)), None)
    if name is None or c.pairs < LEAST_RUNS:
        return False
    one, two = ([run.spans.get(name, 0) / run.work for run in arm] for arm in (c.a, c.b))
    (x,) = stats.estimate(one, two, c.method, [run.start_s for run in runs])
    return x.p is not None and x.p <= stats.ALPHA and x.mid < 0
