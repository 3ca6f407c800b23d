"""A comparison as text and as JSON.

What lives here: results in, text and plain data out. `comparison_text` is what `hotloop compare` and `hotloop ab` print,
`guide_text` the same numbers as the comparison block of a training-time guide. Every text that came from a session is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

from ..analyse.compare import EQUIVALENT, UNDECIDED, Comparison, Component
from ..analyse.predictions import Outcome
from ..analyse.runs import SINGULAR
from ..analyse.stats import ADJUSTED, PAIRED, Interval
from ..printing.text import escape
from .tables import pick
from .units import duration_text

VERSION = 1
SHOWN = 20


def unit_text(unit: str) -> str:
    return SINGULAR.get(unit, escape(unit))


def interval_text(x: Interval, digits: int = 3) -> str:
    """
    >>> interval_text(Interval(1.0, 0.9, 1.1)), interval_text(Interval(2.0))
    ('1.000  95 % CI [0.900, 1.100]', '2.000  (no interval)')
    """
    bounds = bounds_text(x.low, x.high, f".{digits}f")
    return f"{x.mid:.{digits}f}  " + (f"95 % CI {bounds}" if bounds else "(no interval)")


def bounds_text(low: float | None, high: float | None, form: str | Callable[[float], str]) -> str:
    """Where an interval ends; nothing where there is none.

    >>> bounds_text(0.5, 1.25, ".2f"), bounds_text(None, None, ".2f")
    ('[0.50, 1.25]', '')
    """
    if low is None or high is None:
        return ""
    put = form if callable(form) else lambda x: format(x, form)
    return f"[{put(low)}, {put(high)}]"


def design_text(c: Comparison) -> str:
    if c.method == PAIRED:
        return f"{c.pairs} ABBA pair{'s' * (c.pairs != 1)}"
    how = "one side after the other" if c.method == ADJUSTED else "not in pairs"
    return f"{len(c.a)} and {len(c.b)} runs, {how}"


def verdict_text(c: Comparison) -> str:
    """The verdict, and what the design could have seen."""
    word = c.verdict.upper()
    facts = [] if c.p is None else [f"p = {c.p:.2g}"]
    if c.verdict == EQUIVALENT:
        word = f"EQUIVALENT within ±{c.margin * 100:g} %"
    if c.reason:
        facts.insert(0, c.reason)
    if c.detectable is not None:
        facts.append(f"this design catches ±{c.detectable * 100:.1f} % four times in five")
    if c.needed_pairs is not None and (c.verdict == UNDECIDED or c.detectable is None):
        least = "at least" if c.needed_is_least else "about"
        facts.append(f"±{c.margin * 100:g} % needs {least} {c.needed_pairs:,} pairs")
    return f"verdict: {word}" + (f"  ({'; '.join(facts)})" if facts else "")


def comparison_text(
    c: Comparison, outcomes: Sequence[Outcome] = (), names: tuple[str, str] = ("A", "B"), width: int = 100
) -> str:
    lines = [
        f"A: {escape(names[0])}",
        f"B: {escape(names[1])}",
        f"per {unit_text(c.unit)}: B/A = {interval_text(c.ratio)}  {design_text(c)}",
        *wrap(verdict_text(c), width, subsequent_indent="         "),
        f"speed-up: {interval_text(c.speedup, 2)}   saved: {saved_text(c.ratio)}",
        f"also: medians B/A = {interval_text(c.median)}; 95th percentiles B/A = {interval_text(c.p95)}",
        "",
        *_component_lines(c),
        "",
        *_return_lines(c),
        quality_text(c),
        *(line for note in c.quality.notes for line in wrap(f"note: {escape(note)}", width, subsequent_indent="      ")),
        *_ledger_lines(outcomes),
    ]
    return "\n".join(lines)


def saved_text(ratio: Interval) -> str:
    """speedup % = (base - new) / base, with its interval.

    >>> saved_text(Interval(0.75, 0.7, 0.8))
    '+25.0 % [+20.0, +30.0]'
    """
    bounds = bounds_text(ratio.high, ratio.low, lambda x: f"{(1 - x) * 100:+.1f}")
    return f"{(1 - ratio.mid) * 100:+.1f} % {bounds}".rstrip()


def signed_text(ns: float) -> str:
    return ("+" if ns > 0 else "-" if ns < 0 else "") + duration_text(abs(ns))


def component_cells(row: Component) -> list[str]:
    """What is said of a component, after its name."""
    times = [duration_text(row.a_ns), duration_text(row.b_ns), signed_text(row.delta_ns)]
    return [*times, bounds_text(row.low_ns, row.high_ns, signed_text), row.verdict]


def _component_lines(c: Comparison) -> list[str]:
    head = f"change by component (own time in a run of {c.work:,} {escape(c.unit)}; sums to the total)"
    rows = [c.total, *c.components[:SHOWN]]
    width = min(40, max(9, *(len(escape(row.name)) for row in rows)))
    lines = [head, f"  {'component':<{width}} {'A':>10} {'B':>10} {'change':>11}  {'95 % CI':<24} verdict"]
    for row in rows:
        a, b, change, bounds, verdict = component_cells(row)
        lines.append(f"  {escape(row.name)[:width]:<{width}} {a:>10} {b:>10} {change:>11}  {bounds:<24} {verdict}")
    rest = c.components[SHOWN:]
    if rest:
        lines.append(f"  … {len(rest)} more with {signed_text(sum(row.delta_ns for row in rest))}; all are in --json")
    return lines


def _return_lines(c: Comparison) -> list[str]:
    r = c.returned
    if r is None:
        return []
    said = {"better": "B learned more", "worse": "B learned less: a faster run is no win"}.get(
        r.verdict, "no difference is shown"
    )
    apart = f"{r.difference.mid:+.3g} {bounds_text(r.difference.low, r.difference.high, '+.3g')}".rstrip()
    return [f"return: A {r.a:.4g}, B {r.b:.4g}, B - A = {apart}: {said}"]


def quality_text(c: Comparison) -> str:
    q = c.quality
    spread = (q.profiler.high or 0.0) - q.profiler.mid
    settled = "" if not q.unsettled else f" ({q.unsettled} of {len(c.a) + len(c.b)} runs without a steady state)"
    parts = [
        f"dropped {q.dropped_share * 100:.2g} %" if q.dropped_share else "dropped 0",
        f"drift {q.drift * 100:+.1f} %",
        f"left out as warm-up: {q.warm_up} iteration{'s' * (q.warm_up != 1)}{settled}",
        f"profiler {q.profiler.mid * 100:.1f} ± {spread * 100:.1f} %",
    ]
    return "quality: " + " | ".join(parts)


def _ledger_lines(outcomes: Sequence[Outcome]) -> list[str]:
    if not outcomes:
        return []
    lines = ["", "predicted and actual (the baseline's findings)"]
    for x in outcomes:
        numbers = f"predicted {range_text(x.predicted)}  actual {range_text(x.actual)}"
        lines.append(f"  {escape(x.finding.cause):<24} {numbers}  {outcome_text(x)}")
    return lines


def outcome_text(x: Outcome) -> str:
    return {True: "held", False: "did not hold", None: "open"}[x.held] if x.acted_on else "not acted on"


def range_text(x: Interval) -> str:
    """
    >>> range_text(Interval(2.0, 1.5, 2.5)), range_text(Interval(2.0))
    ('2.00x [1.50, 2.50]', '2.00x')
    """
    return f"{x.mid:.2f}x {bounds_text(x.low, x.high, '.2f')}".rstrip()


def guide_text(c: Comparison, names: tuple[str, str] = ("A", "B")) -> str:
    """The comparison block, with intervals: seconds of the mean run, speed-up = (baseline - new) / baseline."""
    total = c.total
    lines = [
        "=" * 80, "Comparison Report", "=" * 80, "",
        "Overall Performance:",
        f"  Baseline (A): {total.a_ns / 1e9:.2f}s   {escape(names[0])}",
        f"  New (B):      {total.b_ns / 1e9:.2f}s   {escape(names[1])}",
        f"  Speedup:      {saved_text(c.ratio).replace(' %', '%')}   ({c.speedup.mid:.2f}x; {design_text(c)}; {c.verdict})",
        "",
        "Component-Level Comparison:",
        f"{'Component':<30}{'Baseline':>12}{'New':>12}{'Speedup':>10}   Verdict",
        "-" * 80,
    ]  # fmt: skip
    lines += [
        f"{escape(row.name)[:30]:<30}{row.a_ns / 1e9:>11.3f}s{row.b_ns / 1e9:>11.3f}s{_percent(row):>10}   {row.verdict}"
        for row in sorted(c.components, key=lambda row: -row.a_ns)
    ]
    return "\n".join(lines)


def _percent(row: Component) -> str:
    return f"{-row.delta_ns / row.a_ns * 100:+.1f}%" if row.a_ns else "-"


# ---- JSON ----


def component_data(row: Component) -> dict[str, Any]:
    low, high = (None if ns is None else ns / 1e9 for ns in (row.low_ns, row.high_ns))
    seconds = {"delta_s": row.delta_ns / 1e9, "low": low, "high": high}
    return {"name": row.name, **seconds, **pick(row, "verdict a_ns b_ns delta_ns"), "p_holm": row.p}


def comparison_data(c: Comparison, outcomes: Sequence[Outcome] = (), names: tuple[str, str] = ("A", "B")) -> dict[str, Any]:
    q = c.quality
    return {
        "version": VERSION,
        **pick(c, "verdict refused unit p p_permutation pairs method margin detectable needed_pairs work"),
        "reason": c.reason or None,
        "ratio": asdict(c.ratio),
        "speedup": asdict(c.speedup),
        "median_ratio": asdict(c.median),
        "p95_ratio": asdict(c.p95),
        "runs": {"a": len(c.a), "b": len(c.b)},
        "needed_pairs_is_least": c.needed_is_least,
        "total": component_data(c.total),
        "components": [component_data(row) for row in c.components],
        "quality": {
            "dropped_share": q.dropped_share, "drift": q.drift, "warm_up_iterations": q.warm_up, "unsettled_runs": q.unsettled,
            "profiler": asdict(q.profiler), "notes": list(q.notes),
        },
        "return": None if c.returned is None else asdict(c.returned),
        "predictions": [
            {
                **pick(x.finding, "cause title span"),
                "predicted": asdict(x.predicted), "actual": asdict(x.actual), **pick(x, "acted_on held"),
            }
            for x in outcomes
        ],
        "a": {"name": names[0], "sessions": [run.name for run in c.a], "ns_per_unit": [run.ns_per_unit for run in c.a]},
        "b": {"name": names[1], "sessions": [run.name for run in c.b], "ns_per_unit": [run.ns_per_unit for run in c.b]},
    }  # fmt: skip
