"""What the baseline's findings promised, beside what was measured.

What lives here: findings and a comparison in, one row per finding out. A finding counts as acted on where the time in and below
its span fell; the measured gain is that of the whole change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.finding import Finding
from . import stats
from .compare import LEAST_RUNS, Comparison
from .stats import Interval


@dataclass(frozen=True, slots=True)
class Outcome:
    """A prediction and what came of it."""

    finding: Finding
    actual: Interval
    acted_on: bool
    held: bool | None  # do the two intervals overlap? None while it is open

    @property
    def predicted(self) -> Interval:
        return Interval(self.finding.gain.mid, self.finding.gain.low, self.finding.gain.high)


def judge_predictions(findings: Sequence[Finding], comparison: Comparison) -> tuple[Outcome, ...]:
    """Only where both sides ran the same script: otherwise the findings speak of another program."""
    if {run.script for run in comparison.a} != {run.script for run in comparison.b}:
        return ()
    actual = comparison.speedup
    out = []
    for finding in findings:
        acted_on = _has_fallen(finding.span, comparison)
        held = None
        if acted_on and actual.low is not None and actual.high is not None:
            held = actual.low <= finding.gain.high and finding.gain.low <= actual.high
        out.append(Outcome(finding, actual, acted_on, held))
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
