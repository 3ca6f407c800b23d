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

MEASURED = "measured"  # by a curve of the script's own objects
WAITS = "waits"  # time in which the training only waited
CAUSE = "cause"  # other time that a specific cause explains: what its remedy removes is known
PLACE = "place"  # other time of a place that is told by its mechanism alone
# fmt: off
_CAUSE = (
    -0.39, -0.35, -0.33, -0.3, -0.27, -0.18, -0.18, -0.14, -0.12, -0.1, -0.09, -0.09, -0.08, -0.06, -0.05, -0.04,
    -0.03, -0.02, -0.02, -0.02, -0.02, -0.01, 0.01, 0.01, 0.01, 0.02, 0.03, 0.03, 0.04, 0.05, 0.05, 0.05, 0.06, 0.07, 0.07,
    0.08, 0.08, 0.08, 0.08, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.09, 0.1, 0.1, 0.11, 0.13, 0.13, 0.13, 0.15,
    0.15, 0.17, 0.17, 0.17, 0.18, 0.19, 0.19, 0.21, 0.21, 0.22, 0.22, 0.22, 0.24, 0.25, 0.25, 0.26, 0.27, 0.27, 0.27, 0.28,
    0.28, 0.29, 0.29, 0.3, 0.31, 0.32, 0.35, 0.36, 0.36, 0.41, 0.48, 0.55, 0.55, 0.56, 0.58, 0.61, 0.67, 0.73, 0.77, 0.77,
    0.89, 0.98, 1.54,
)
RESIDUALS: dict[str, tuple[float, ...]] = {
    MEASURED: _CAUSE,  # too few of their own yet: -0.5, -0.36, -0.18, 0.01, 0.19, 0.3
    WAITS: (
        -0.3, -0.21, -0.19, -0.17, -0.15, -0.12, -0.11, -0.11, -0.1, -0.05, -0.03, -0.02, -0.01, 0.02, 0.06, 0.07, 0.08,
        0.1, 0.16, 0.19, 0.2, 0.21, 0.22, 0.24, 0.25, 0.26, 0.27, 0.28, 0.28, 0.36, 0.37, 0.39, 0.4, 0.4, 0.46, 0.53, 0.59,
        0.61, 0.74, 0.85, 0.88,
    ),
    CAUSE: _CAUSE,
    PLACE: (
        -0.38, -0.37, -0.35, -0.31, -0.16, -0.03, 0.01, 0.02, 0.02, 0.06, 0.06, 0.08, 0.09, 0.09, 0.17, 0.18, 0.21, 0.28,
        0.28, 0.28, 0.3, 0.32, 0.34, 0.34, 0.35, 0.41, 0.44, 0.49, 0.58, 0.63, 0.64, 0.79, 0.93, 1.11,
    ),
}
# fmt: on
COVERED = 0.85  # of the outcomes, inside the interval; with 0.90 the high end is 2.9 times the low one: too wide to act on
_NORMAL = 1.645  # standard deviations that hold as many of a normal distribution


def interval(kind: str, mid: float, samples: int) -> Gain:
    """What a model expects (`mid`), as experience has it, with its interval. `samples`: that the share was known from; 0: from
    clocks. The time a finding is about is no upper limit: with it goes what it dragged along elsewhere.

    >>> gain = interval(CAUSE, 2.0, 400)
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

    >>> round(told_from(PLACE, interval(PLACE, 2.0, 0).mid), 2)
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
