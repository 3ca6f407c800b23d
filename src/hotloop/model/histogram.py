"""Log-spaced histograms of durations: four buckets per octave, so a percentile is off by at most an eighth of itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

BUCKETS = 160
FIRST_OCTAVE = 4  # below 16 ns everything is one bucket


def bucket_of(duration_ns: int) -> int:
    """The histogram bucket of a duration: four per octave from 16 ns on.

    >>> bucket_of(0), bucket_of(16), bucket_of(20), bucket_of(10**18)
    (0, 0, 1, 159)
    """
    if duration_ns < 16:
        return 0
    octave = duration_ns.bit_length() - 1
    index = (octave - FIRST_OCTAVE) * 4 + ((duration_ns >> (octave - 2)) & 3)
    return index if index < BUCKETS else BUCKETS - 1


def bucket_bounds(index: int) -> tuple[int, int]:
    """The durations of a bucket, lower bound included, upper excluded.

    >>> bucket_bounds(1)
    (20, 24)
    """
    octave, quarter = divmod(index, 4)
    unit = 1 << (octave + FIRST_OCTAVE - 2)
    low = 0 if index == 0 else (4 + quarter) * unit
    return low, (5 + quarter) * unit


def add_histograms(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    total: list[int] = []
    for histogram in histograms:
        total = list(histogram) if not total else [a + b for a, b in zip(total, histogram, strict=True)]
    return tuple(total)


def percentile(histogram: Sequence[int], q: float, least: float, most: float, scale: float = 1.0) -> float:
    """Interpolated within its bucket, and never outside the observed extremes."""
    wanted = q * sum(histogram)
    below = 0
    for index, count in enumerate(histogram):
        if count and below + count >= wanted:
            low, high = bucket_bounds(index)
            at = (low + (high - low) * (wanted - below) / count) * scale
            return min(max(at, least), most)
        below += count
    return most
