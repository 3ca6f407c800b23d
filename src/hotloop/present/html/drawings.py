"""Drawings for pages without a script: distributions over one another, bars with whiskers, points with intervals, curves.

What lives here: numbers in, SVG elements out. Nothing is told by colour alone: A is solid, B dashed; signs and words say more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...printing.text import shorten
from .plain import Markup, el

Floats = NDArray[np.float64]
WIDTH = 1000


@dataclass(frozen=True, slots=True)
class _Axis:
    """From values to places; logarithmic where values are given as their logarithms."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def svg(height: float, title: str, *children: Markup, width: float = WIDTH) -> Markup:
    return el("svg", el("title", title), *children, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=title)


def _text(x: float, y: float, words: str, anchor: str = "start", class_: str = "") -> Markup:
    return el("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_)


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return el("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_)


def _rect(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return el("rect", x=f"{x:.1f}", y=y, width=f"{width:.1f}", height=height, class_=class_)


def draw_distributions(a: Sequence[Floats], b: Sequence[Floats], label: Callable[[float], str]) -> Markup:
    """Both arms' values over one another on a logarithmic axis; below, one point per run."""
    pools = [np.log(np.concatenate(list(arm))) for arm in (a, b)]
    everything = np.concatenate(pools)
    low, high = (float(x) for x in np.quantile(everything, (0.005, 0.995)))
    means = [[math.log(float(run.mean())) for run in arm] for arm in (a, b)]
    low, high = min(low, *means[0], *means[1]), max(high, *means[0], *means[1])
    if high - low < 1e-9:
        low, high = low - 0.01, high + 0.01
    edges = np.linspace(low, high, 49)
    at = _Axis(low, high, 20, WIDTH - 20)
    parts: list[Markup] = []
    heights = [np.histogram(np.clip(pool, low, high), edges)[0] / len(pool) for pool in pools]
    top = max(float(h.max()) for h in heights) or 1.0
    for height, letter in zip(heights, "AB", strict=True):
        points = [(at(edges[0]), 220.0)]
        for i, h in enumerate(height):
            y = 220 - 200 * float(h) / top
            points += [(at(edges[i]), y), (at(edges[i + 1]), y)]
        points.append((at(edges[-1]), 220.0))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts += [el("polygon", points=path, class_=f"area{letter}"), el("polyline", points=path, class_=f"line{letter}")]
    for row, letter in enumerate("AB"):
        y = 240 + 18 * row
        parts.append(_text(2, y + 4, letter, class_="strong"))
        parts += [el("circle", cx=f"{at(m):.1f}", cy=y, r=4, class_=f"dot{letter}") for m in means[row]]
    parts += [_line(20, 220, WIDTH - 20, 220, "zero")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(_text(20 + share * (WIDTH - 40), 288, label(math.exp(low + share * (high - low))), anchor))
    return svg(296, "Distribution of the time per unit of work: A solid, B dashed; points are the means of the runs", *parts)


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: float
    low: float | None
    high: float | None
    words: str
    verdict: str

    @property
    def kind(self) -> str:
        """What the style sheet calls it."""
        return {"faster": "down", "slower": "up"}.get(self.verdict, "open")


def draw_bars(bars: Sequence[Bar]) -> Markup:
    """Differences to the left and right of zero, with their intervals."""
    reach = max((abs(x) for bar in bars for x in (bar.value, bar.low or 0.0, bar.high or 0.0)), default=0.0) or 1.0
    middle, room = 560.0, 300.0
    at = _Axis(-reach, reach, middle - room, middle + room)
    parts = [_line(middle, 6, middle, 10 + 26 * len(bars), "zero")]
    for i, bar in enumerate(bars):
        y = 22 + 26 * i
        left, right = sorted((at(0), at(bar.value)))
        parts.append(_text(240, y + 4, shorten(bar.name, 34), "end", "strong"))
        parts.append(_rect(left, y - 8, max(1.0, right - left), 16, bar.kind))
        if bar.low is not None and bar.high is not None:
            parts.append(_line(at(bar.low), y, at(bar.high), y, "whisker"))
        parts.append(_text(WIDTH - 4, y + 4, f"{bar.words} {bar.verdict}", "end"))
    return svg(20 + 26 * len(bars), "Change by component with 95 % intervals; left of the line is faster", *parts)


def draw_forest(bars: Sequence[Bar], hopes: Sequence[tuple[float, float] | None]) -> Markup:
    """Speed-ups on a logarithmic axis: point and interval; the band is what was expected."""
    values = [x for bar in bars for x in (bar.value, bar.low, bar.high) if x and x > 0] + [
        x for hope in hopes if hope for x in hope
    ]
    low, high = min([0.8, *values]), max([1.25, *values])
    axis = _Axis(math.log(low), math.log(high), 260, 760)

    def at(value: float) -> float:
        return axis(math.log(value))

    parts = [_line(at(1), 6, at(1), 12 + 28 * len(bars), "zero")]
    for i, (bar, hope) in enumerate(zip(bars, hopes, strict=True)):
        y = 22 + 28 * i
        parts.append(_text(246, y + 4, shorten(bar.name, 36), "end", "strong"))
        if hope:
            parts.append(_rect(at(hope[0]), y - 10, max(2.0, at(hope[1]) - at(hope[0])), 20, "hope"))
        if bar.low and bar.high:
            parts.append(_line(at(bar.low), y, at(bar.high), y, "whisker"))
        parts.append(el("circle", cx=f"{at(bar.value):.1f}", cy=y, r=5, class_=bar.kind))
        parts.append(_text(WIDTH - 4, y + 4, f"{bar.words} {bar.verdict}", "end"))
    parts += [_text(at(value), 30 + 28 * len(bars), f"{value:.2g}x", "middle") for value in (low, 1.0, high)]
    return svg(40 + 28 * len(bars), "Measured speed-up with 95 % intervals; the band is what was expected", *parts)


def draw_scaling(points: Sequence[tuple[float, float]], curve: Callable[[float], float], reach: float, title: str) -> Markup:
    """Time over size, both logarithmic: points are runs, the line is the fitted law, drawn on to `reach`."""
    sizes = [n for n, _ in points]
    low_n, high_n = min(sizes), max(*sizes, reach)
    grid = np.geomspace(low_n, high_n, 40)
    fitted = [max(curve(float(n)), 1e-12) for n in grid]
    times = [max(y, 1e-12) for _, y in points] + fitted
    low, high = min(times), max(times)
    high = high if high > low else low * 1.1
    across, up = _Axis(math.log(low_n), math.log(high_n), 70, 470), _Axis(math.log(low), math.log(high), 180, 30)

    def at_x(n: float) -> float:
        return across(math.log(n))

    def at_y(y: float) -> float:
        return up(math.log(max(y, 1e-12)))

    path = " ".join(f"{at_x(n):.1f},{at_y(y):.1f}" for n, y in zip(grid, fitted, strict=True))
    parts = [_line(70, 185, 480, 185, "zero"), el("polyline", points=path, class_="lineA")]
    parts += [el("circle", cx=f"{at_x(n):.1f}", cy=f"{at_y(y):.1f}", r=4, class_="dotB") for n, y in points]
    parts += [_text(70, 202, f"{low_n:g}"), _text(480, 202, f"{high_n:g}", "end"), _text(64, at_y(low), f"{low:.3g} s", "end")]
    parts += [_text(64, at_y(high) + 6, f"{high:.3g} s", "end"), _text(70, 16, title, class_="strong")]
    return svg(208, title, *parts, width=500)
