"""A sweep over sizes as text, HTML with plots, and JSON.

What lives here: a `Sweep` in, documents out; one table of cells feeds text and page. Names from a session are escaped.
"""

from __future__ import annotations

from typing import Any

from ..analyse.scaling import CONSTANT, LINEAR, LOGLINEAR, PIECEWISE, Law
from ..analyse.sweep import Sweep
from ..printing.text import align, escape
from .html.drawings import draw_scaling
from .html.plain import Markup, el, page, section, table
from .tables import pick
from .units import duration_text

VERSION = 1
SHOWN = 15
HEADS = ("component", "smallest", "largest", "law", "exponent b", "growth", "held-out largest")


def law_text(law: Law) -> str:
    """The law as a formula in n."""

    def seconds(s: float) -> str:
        return duration_text(s * 1e9)

    if law.model == CONSTANT:
        return seconds(law.fixed_s)
    if law.model == PIECEWISE:
        return f"{seconds(law.fixed_s)} + {seconds(law.slope_s)}·n, from {law.knee:g} on {seconds(law.slope_after_s)}·n"
    shape = {LINEAR: "n", LOGLINEAR: "n·log₂n"}.get(law.model, f"n^{law.exponent:.2f}")
    fixed = f"{seconds(law.fixed_s)} + " if law.fixed_s > 1e-9 else ""
    return f"{fixed}{seconds(law.slope_s)}·{shape}"


def _cells(law: Law, smallest: int) -> list[str]:
    bounds = law.exponent_bounds
    exponent = f"{law.exponent:.2f} [{bounds.low:.2f}, {bounds.high:.2f}]" if bounds else f"{law.exponent:.2f} (no interval)"
    if bounds and bounds.high - bounds.low > 2.5:  # next to nothing varies with n
        exponent = "any"
    first = [s for n, s in law.points if n == smallest]
    held = ""
    if law.agrees is not None:
        held = f"{duration_text(law.held_out_s * 1e9)} predicted: {'agrees' if law.agrees else 'DOES NOT AGREE'}"
    times = [duration_text(sum(first) / len(first) * 1e9), duration_text(law.measured_s * 1e9)]
    return [law.name, *times, law_text(law), exponent, law.growth, held]


def _rows(sweep: Sweep) -> list[list[str]]:
    smallest = min(run.size for run in sweep.runs)
    return [_cells(law, smallest) for law in (sweep.total, *sweep.laws)]


def _facts(sweep: Sweep) -> list[str]:
    sizes = sorted({run.size for run in sweep.runs})
    out = [f"{len(sweep.runs)} runs at n = {', '.join(f'{n:,}' for n in sizes)}"]
    if sweep.warning:
        out.append(f"note: {sweep.warning}")
    p = sweep.prediction
    if p is not None:
        bounds = f"{duration_text(p.low * 1e9)} to {duration_text(p.high * 1e9)}"
        out.append(f"prediction for n = {p.size:,.0f}: {duration_text(p.seconds * 1e9)}, 95 % {bounds}")
        out.append("of which " + ", ".join(f"{escape(name)} {share * 100:.0f} %" for name, share in sweep.shares[:6]))
    return [*out, *(f"within the largest run: {escape(text)}" for text in sweep.trends)]


def sweep_text(sweep: Sweep) -> str:
    rows = [list(HEADS), *([escape(cell) for cell in row] for row in _rows(sweep)[: SHOWN + 1])]
    return "\n".join([*_facts(sweep)[:1], "", *align(rows, 46), "", *_facts(sweep)[1:]])


def sweep_page(sweep: Sweep) -> str:
    reach = sweep.prediction.size if sweep.prediction else 0.0
    plots = [_plot(law, reach) for law in (sweep.total, *sweep.laws[:SHOWN])]
    return page(
        "Scaling",
        el("section", *(el("p", fact) for fact in _facts(sweep))),
        section("Laws", table(HEADS, _rows(sweep))),
        section("Time over size, both logarithmic", el("div", *plots, class_="plots")),
    )


def _plot(law: Law, reach: float) -> Markup:
    return draw_scaling(law.points, law.predict, reach, f"{law.name}: {law_text(law)}")


def sweep_data(sweep: Sweep) -> dict[str, Any]:
    p = sweep.prediction
    return {
        "version": VERSION,
        "runs": [pick(r, "size total_ns components") for r in sweep.runs],
        "total": _law_data(sweep.total),
        "components": [_law_data(law) for law in sweep.laws],
        "prediction": None if p is None else pick(p, "size seconds low high"),
        "shares": dict(sweep.shares),
        "note": sweep.warning or None,
        "trends": list(sweep.trends),
    }


def _law_data(law: Law) -> dict[str, Any]:
    bounds = law.exponent_bounds
    return {
        **pick(law, "name model fixed_s slope_s"), "knee": law.knee or None,
        "slope_after_s": law.slope_after_s if law.knee else None, "growth": law.growth,
        "exponent": {"mid": law.exponent, "low": bounds.low if bounds else None, "high": bounds.high if bounds else None},
        "held_out": {"predicted_s": law.held_out_s, "measured_s": law.measured_s, "agrees": law.agrees},
    }  # fmt: skip
