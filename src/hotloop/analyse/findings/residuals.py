"""How far predictions were off, and the interval of the next one that follows from it.

What lives here: what came of predictions by their kind, and the interval. With l the logarithm of the gain a model expects, the
logarithm of the gain that was measured is l + u √l. u is 0 for a perfect prediction, below 0 where it promised too much.
Small gains are missed by little and large ones by more, but not in proportion: with √l one list serves both. Pure.

What a model expects is moved by the middle one of these numbers before it is told. They are of the cases in
tests/diagnosis/cases (never of those that are only scored), measured with their fixes by
`python benchmarks/diagnosis.py --residuals`, on two shared cores, without those whose recorded loop took another time than the
bare one by more than a half: the machine had changed between them. Predictions that were put to the test on the user's own
machine are added by model/history.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...model.finding import Gain

MEASURED, WAITS, CODE = "measured", "waits", "code"  # by a curve of the script's own objects; time spent waiting; other time
# fmt: off
_CODE = (
    -0.39, -0.39, -0.33, -0.26, -0.17, -0.11, -0.11, -0.04, 0.01, 0.01, 0.02, 0.02, 0.02, 0.06, 0.06, 0.06, 0.07, 0.07, 0.10,
    0.11, 0.11, 0.11, 0.12, 0.15, 0.19, 0.26, 0.32, 0.32, 0.35, 0.43, 0.55, 0.78, 0.86, 1.15,
)
RESIDUALS: dict[str, tuple[float, ...]] = {
    MEASURED: _CODE,  # too few of their own yet: -0.39, -0.11, 0.32, 0.35
    WAITS: (-0.83, -0.65, -0.43, -0.32, -0.18, 0.08, 0.27, 0.36, 0.36, 0.65, 0.74),
    CODE: _CODE,
}
# fmt: on
COVERED = 0.90  # of the outcomes, inside the interval
_NORMAL = 1.645  # standard deviations that hold as many of a normal distribution


def interval(kind: str, mid: float, samples: int) -> Gain:
    """What a model expects (`mid`), as experience has it, with its interval. `samples`: that the share was known from; 0: from
    clocks. The time a finding is about is no upper limit: with it goes what it dragged along elsewhere.

    >>> gain = interval(CODE, 2.0, 400)
    >>> gain.low < 2.0 < gain.high
    True
    """
    known = RESIDUALS[kind]
    noise = _NORMAL * math.log(mid) / math.sqrt(samples) if samples else 0.0
    ends = [quantile(known, q) * math.sqrt(math.log(mid)) for q in ((1 - COVERED) / 2, 0.5, (1 + COVERED) / 2)]
    low, middle, high = -math.hypot(min(0.0, ends[0]), noise), ends[1], math.hypot(max(0.0, ends[2]), noise)
    return Gain(max(1.0, mid * math.exp(low)), mid * math.exp(middle), mid * math.exp(high))


def residual(expected: float, actual: float) -> float:
    """What became of one prediction.

    >>> round(residual(2.0, 2.0), 2), round(residual(2.0, 1.5), 2)
    (0.0, -0.35)
    """
    return math.log(actual / expected) / math.sqrt(math.log(expected))


def told_from(kind: str, told: float) -> float:
    """What the model had expected where this was told.

    >>> round(told_from(CODE, interval(CODE, 2.0, 0).mid), 2)
    2.0
    """
    half = quantile(RESIDUALS[kind], 0.5) / 2
    return math.exp((math.sqrt(math.log(told) + half * half) - half) ** 2)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Such that a further outcome lies below it with probability q; at most the largest seen.

    >>> quantile((1.0, 2.0, 3.0), 0.5), quantile((1.0, 2.0, 3.0), 0.99)
    (2.0, 3.0)
    """
    at = min(len(ordered) - 1.0, max(0.0, q * (len(ordered) + 1) - 1))
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
