"""A comparison as one HTML page: verdict, overlaid distributions, bars per component, tables.

What lives here: a `Comparison` in, a document out, made of escaped elements only (`html.plain`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.compare import Comparison
from ..analyse.predictions import Outcome
from .comparison import (
    component_cells,
    design_text,
    interval_text,
    outcome_text,
    quality_text,
    saved_text,
    signed_text,
    unit_text,
    verdict_text,
)
from .html.drawings import Bar, draw_bars, draw_distributions
from .html.plain import Markup, el, page, section, table
from .units import duration_text

BARS = 30


def comparison_page(c: Comparison, outcomes: Sequence[Outcome] = (), names: tuple[str, str] = ("A", "B")) -> str:
    return page("Comparison", *comparison_sections(c, outcomes, names))


def comparison_sections(c: Comparison, outcomes: Sequence[Outcome], names: tuple[str, str]) -> list[Markup]:
    verdict = el(
        "section",
        el("p", c.verdict.upper(), class_=f"verdict {c.verdict}"),
        el("p", f"per {unit_text(c.unit)}: B/A = {interval_text(c.ratio)}  {design_text(c)}"),
        el("p", verdict_text(c)),
        el("p", f"speed-up: {interval_text(c.speedup, 2)}; saved {saved_text(c.ratio)}"),
        el("p", f"A: {names[0]}", class_="muted"),
        el("p", f"B: {names[1]}", class_="muted"),
        el("p", quality_text(c), class_="muted"),
        el("ul", *(el("li", note) for note in c.quality.notes)),
    )
    shape = section(
        f"Time per {unit_text(c.unit)}",
        el(
            "p",
            "Iterations of all runs (A solid, B dashed), and the mean of each run as a point. The runs are what is compared.",
            class_="muted",
        ),
        draw_distributions([run.row_ns for run in c.a], [run.row_ns for run in c.b], duration_text),
    )
    bars = [Bar(r.name, r.delta_ns, r.low_ns, r.high_ns, signed_text(r.delta_ns), r.verdict) for r in c.components[:BARS]]
    where = section(
        "Change by component",
        el("p", f"Own time of each label in a run of {c.work:,} {c.unit}; the rows add up to the total.", class_="muted"),
        draw_bars(bars),
        _component_table(c),
    )
    return [verdict, shape, where, *_return_section(c), *_ledger_section(outcomes), _runs_section(c)]


def _component_table(c: Comparison) -> Markup:
    rows = [[r.name, *component_cells(r)] for r in (c.total, *c.components)]
    return table(["component", "A", "B", "change", "95 % CI", "verdict"], rows)


def _return_section(c: Comparison) -> list[Markup]:
    if c.returned is None:
        return []
    r = c.returned
    words = f"A {r.a:.4g}, B {r.b:.4g}, difference {interval_text(r.difference)}: {r.verdict}"
    return [section("Return the scripts reported", el("p", words))]


def _ledger_section(outcomes: Sequence[Outcome]) -> list[Markup]:
    if not outcomes:
        return []
    rows = [[x.finding.cause, interval_text(x.predicted, 2), interval_text(x.actual, 2), outcome_text(x)] for x in outcomes]
    return [section("Predicted and actual", table(["cause", "predicted", "actual", ""], rows))]


def _runs_section(c: Comparison) -> Markup:
    order = sorted([("A", run) for run in c.a] + [("B", run) for run in c.b], key=lambda item: item[1].start_s)
    rows = [[run.name, letter, duration_text(run.ns_per_unit), f"{run.work:,}", run.warm_up.reason] for letter, run in order]
    return section("Runs, in order", table(["session", "arm", f"per {unit_text(c.unit)}", "work", "warm-up"], rows))
