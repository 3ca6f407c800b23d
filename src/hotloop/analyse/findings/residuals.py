"""How far predictions were off, and the interval of the next one that follows from it.

What lives here: what came of predictions by their kind, and the interval. A prediction says that a loop gets `mid` times as
fast; it got `mid ** z` times as fast. z is 1 for a perfect one, below 1 where it promised too much. Powers serve small and
large gains alike: 1.1 where 1.2 was promised and 1.4 where 2 was promised are both z = 0.5. Pure.

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
    0.48, 0.50, 0.56, 0.62, 0.76, 0.81, 0.87, 0.92, 1.01, 1.02, 1.02, 1.03, 1.03, 1.07, 1.08, 1.09, 1.09, 1.09, 1.12, 1.15,
    1.15, 1.16, 1.17, 1.18, 1.22, 1.31, 1.32, 1.32, 1.33, 1.68, 1.79, 1.81, 2.55, 2.73,
)
RESIDUALS: dict[str, tuple[float, ...]] = {
    MEASURED: _CODE,  # too few of their own yet: 0.56, 0.87, 1.31, 1.33
    WAITS: (0.39, 0.50, 0.55, 0.63, 0.65, 1.10, 1.41, 1.42, 1.57, 1.58, 1.91),
    CODE: _CODE,
}
# fmt: on
COVERED = 0.90  # of the outcomes, inside the interval
_NORMAL = 1.645  # standard deviations that hold as many of a normal distribution


def interval(kind: str, mid: float, most: float, samples: int) -> Gain:
    """What a model expects (`mid`), as experience has it, with its interval. `most`: without all that the finding is about, and
    what it drags along. `samples`: that the share was known from; 0: from clocks.

    >>> gain = interval(CODE, 2.0, 9.0, 400)
    >>> gain.low < 2.0 < gain.high
    True
    """
    if mid <= 1:
        return Gain(mid, mid, max(mid, most))
    known = RESIDUALS[kind]
    noise = _NORMAL / math.sqrt(samples) if samples else 0.0
    low = 1 - math.hypot(1 - min(1.0, quantile(known, (1 - COVERED) / 2)), noise)
    high = 1 + math.hypot(max(1.0, quantile(known, (1 + COVERED) / 2)) - 1, noise)
    most = max(mid, most)
    return Gain(mid ** max(0.0, low), min(mid ** quantile(known, 0.5), most), min(mid**high, most))


def quantile(ordered: Sequence[float], q: float) -> float:
    """Such that a further outcome lies below it with probability q; at most the largest seen.

    >>> quantile((1.0, 2.0, 3.0), 0.5), quantile((1.0, 2.0, 3.0), 0.99)
    (2.0, 3.0)
    """
    at = min(len(ordered) - 1.0, max(0.0, q * (len(ordered) + 1) - 1))
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
