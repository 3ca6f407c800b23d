"""What the script's own objects cost at other sizes, measured after it had ended: plain data and the arithmetic of a curve.

Who may touch it: anyone; pure, standard library only. Invariant: a curve has at least one point, and its rows grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Point:
    rows: int
    ns: float
    spread_ns: float  # half of the middle half of the calls


@dataclass(frozen=True, slots=True)
class Curve:
    """One way to call a network: its cost against the rows of a call; with its backward pass where it learns."""

    network: str
    method: str  # "": it was called as such
    phase: int
    rows: int  # of the latest call that was seen
    mean_rows: float
    seen: int
    grad: bool
    parameter_bytes: int
    points: tuple[Point, ...]
    variants: Mapping[str, float] = field(default_factory=dict)  # ns of the call as it was, done otherwise

    def cost(self, rows: float) -> float:
        """Nanoseconds of a call with so many rows: between two points on the line through them, beyond on the last one's.

        >>> curve = Curve("Net", "", 1, 1, 1.0, 1, False, 0, (Point(1, 100.0, 0.0), Point(8, 135.0, 0.0)))
        >>> curve.cost(1), curve.cost(8), curve.cost(15), curve.cost(0.5)
        (100.0, 135.0, 170.0, 100.0)
        """
        points = self.points
        if rows <= points[0].rows or len(points) == 1:
            return points[0].ns * (1.0 if rows <= points[0].rows else rows / points[0].rows)
        at = next((i for i, p in enumerate(points) if p.rows >= rows), len(points) - 1)
        one, two = points[at - 1], points[at]
        slope = max(0.0, (two.ns - one.ns) / (two.rows - one.rows))
        return one.ns + slope * (rows - one.rows)

    @property
    def spread(self) -> float:
        """Of a call's time, as a share: how well the curve is known."""
        return max((p.spread_ns / p.ns for p in self.points if p.ns), default=0.0)

    @property
    def marginal_ns(self) -> float:
        """Of one more row in a large call."""
        if len(self.points) < 2:
            return self.points[0].ns / self.points[0].rows
        one, two = self.points[-2], self.points[-1]
        return max(0.0, (two.ns - one.ns) / (two.rows - one.rows))

    @property
    def fixed_share(self) -> float:
        """Of a call as it was made: what it would cost without any row."""
        now = self.cost(self.rows)
        return min(1.0, max(0.0, 1 - self.rows * self.marginal_ns / now)) if now else 0.0


@dataclass(frozen=True, slots=True)
class OptimizerCost:
    name: str
    tensors: int
    size_bytes: int
    ns: float
    variants: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probes:
    curves: tuple[Curve, ...] = ()
    optimizers: tuple[OptimizerCost, ...] = ()
    threads: int = 0  # of torch
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
