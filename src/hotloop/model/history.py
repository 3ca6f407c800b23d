"""Predictions that were put to the test: plain data, and what they teach about the next one.

Who may touch it: anyone; pure, standard library only. Invariant: a gain is above 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .finding import Gain

LEAST_OUTCOMES = 5  # of a cause, until they count


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finding's prediction, and the gain that was measured when it was acted on."""

    cause: str
    mechanism: str
    script: str
    share: float
    low: float
    mid: float
    high: float
    actual: float
    actual_low: float
    actual_high: float
    unix_s: float

    @property
    def saved_ratio(self) -> float:
        """The time that went, against the time that was to go."""
        return (1 - 1 / self.actual) / max(0.01, 1 - 1 / self.mid)

    @property
    def held(self) -> bool:
        """Do the two intervals overlap?"""
        return self.actual_low <= self.high and self.low <= self.actual_high

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse_outcome(said: Any) -> Outcome | None:
    """From anyone's JSON; None where it is no outcome."""
    if not isinstance(said, dict):
        return None
    texts = {name: said.get(name) for name in ("cause", "mechanism", "script")}
    numbers = {
        name: said.get(name) for name in ("share", "low", "mid", "high", "actual", "actual_low", "actual_high", "unix_s")
    }
    if not all(isinstance(x, str) for x in texts.values()):
        return None
    if not all(isinstance(x, (int, float)) and math.isfinite(x) and 0 <= x < 1e12 for x in numbers.values()):
        return None
    if not numbers["mid"] or not numbers["actual"]:
        return None
    return Outcome(**texts, **numbers)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class History:
    """What was measured on this machine, by this user."""

    outcomes: tuple[Outcome, ...] = ()

    def correct(self, cause: str, gain: Gain) -> Gain:
        """The prediction as past outcomes of its cause would have it; unchanged where there are too few."""
        ratios = sorted(outcome.saved_ratio for outcome in self.outcomes if outcome.cause == cause)
        if len(ratios) < LEAST_OUTCOMES:
            return gain
        saved = 1 - 1 / gain.mid
        weight = len(ratios) / (len(ratios) + LEAST_OUTCOMES)  # the rule's own interval keeps the rest
        ends = []
        for end, quantile in ((gain.low, 0.05), (gain.mid, 0.5), (gain.high, 0.95)):
            seen = min(0.97, max(0.0, saved * _quantile(ratios, quantile)))
            own = 1 - 1 / end
            ends.append(1 / (1 - min(0.99, own + weight * (seen - own))))
        low, mid, high = sorted(ends)
        return Gain(low, mid, high)


def _quantile(ordered: Sequence[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
