"""Numbers as people read them: durations with a unit, shares, counts, a sparkline.

What lives here: the only place that formats them. Invariant: shares that are rounded together add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

STEPS = 1000  # shares are shown in tenths of a percent
_SPARKS = "▁▂▃▄▅▆▇█"


def duration_text(ns: float) -> str:
    """Three digits and a unit.

    >>> duration_text(0), duration_text(1234), duration_text(65_300_000), duration_text(7.5e9), duration_text(4000e9)
    ('0 s', '1.23 µs', '65.3 ms', '7.50 s', '1:06:40 h')
    """
    if ns <= 0:
        return "0 s"
    if ns >= 3600e9 - 0.5e9:
        seconds = round(ns / 1e9)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} h"
    if ns >= 600e9:
        return f"{int(ns / 60e9)}:{round(ns / 1e9) % 60:02} min" if round(ns / 1e9) % 60 else f"{round(ns / 60e9)}:00 min"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size * 0.9995:
            return f"{_three(ns / size)} {unit}"
    return f"{_three(ns)} ns"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def share_text(share: float) -> str:
    """
    >>> share_text(0.1234), share_text(1.0)
    ('12.3 %', '100.0 %')
    """
    return f"{share * 100:.1f} %"


def round_parts(parts: Sequence[int], steps: int = STEPS) -> list[int]:
    """Each part's share of their sum in whole steps; together exactly `steps`, each within one step of the truth.

    >>> round_parts([1, 1, 1])
    [334, 333, 333]
    """
    whole = sum(parts)
    if whole <= 0:
        return [0] * len(parts)
    shares = [part * steps // whole for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: -(parts[i] * steps % whole))
    for i in by_remainder[: steps - sum(shares)]:
        shares[i] += 1
    return shares


def interval_text(low: float, high: float) -> str:
    return f"{low * 100:.0f}–{high * 100:.0f} %"


def count_text(n: int) -> str:
    """
    >>> count_text(15360), count_text(12_345_678)
    ('15,360', '12.3 M')
    """
    return f"{n:,}" if n < 1_000_000 else f"{n / 1e6:.1f} M" if n < 1_000_000_000 else f"{n / 1e9:.1f} G"


def rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.1f}"


def spark_text(values: Iterable[float], width: int) -> str:
    """The values as a line of blocks from the smallest to the largest, averaged to fit.

    >>> spark_text([1, 2, 3, 4], 8)
    '▁▃▆█'
    """
    data = np.array([v for v in values if np.isfinite(v)], np.float64)
    if not len(data):
        return ""
    if len(data) > width > 0:
        edges = np.linspace(0, len(data), width + 1).astype(int)
        data = np.array([data[a:b].mean() for a, b in pairwise(edges)])
    low, high = data.min(), data.max()
    if high <= low:
        return _SPARKS[3] * len(data)
    return "".join(_SPARKS[round(float(v))] for v in (data - low) / (high - low) * (len(_SPARKS) - 1))
