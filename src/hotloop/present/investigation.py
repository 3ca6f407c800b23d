"""An investigation as text, Markdown, HTML and JSON.

What lives here: results in, documents out; one table of cells feeds all of them. Text that came from a plan or a session is
escaped for where it goes.
"""

from __future__ import annotations

import re
from typing import Any

from ..analyse.compare import UNDECIDED
from ..analyse.investigation import Investigation, Result
from ..analyse.runs import units_text
from ..printing.text import align, escape
from .comparison import bounds_text, comparison_data, quality_text, range_text
from .comparison_page import comparison_sections
from .html.drawings import Bar, draw_forest
from .html.plain import Markup, el, page, section, table
from .tables import pick
from .units import duration_text, rate_text

VERSION = 1
HEADS = ("hypothesis", "expected", "confidence", "measured", "95 % CI", "verdict", "against expectation")


def expected_text(expected: tuple[float, float] | None) -> str:
    """
    >>> expected_text((2.0, 3.0)), expected_text((1.0, 1.1)), expected_text(None)
    ('2-3x', '<1.1x', '')
    """
    if expected is None:
        return ""
    low, high = expected
    return f"<{high:g}x" if low == 1 and high > 1 else f"{low:g}x" if low == high else f"{low:g}-{high:g}x"


def _cells(r: Result) -> list[str]:
    h, c = r.hypothesis, r.comparison
    head = [h.name, expected_text(h.expected), h.confidence]
    if c is None:
        return [*head, "", "", "failed", r.problem]
    s = c.speedup
    return [*head, f"{s.mid:.2f}x", bounds_text(s.low, s.high, ".2f"), c.verdict, r.against]


def _actions(x: Investigation) -> list[str]:
    lines = []
    for r in x.actions:
        c = r.comparison
        if c is not None:
            saved = duration_text(-c.total.delta_ns)
            lines.append(f"{r.hypothesis.name}: {range_text(c.speedup)}, saves {saved} in {duration_text(c.total.a_ns)}")
    return lines


def _doubts(x: Investigation) -> list[str]:
    """What is not decided, with what it would take, and what speaks against the numbers."""
    out = []
    for r in x.results:
        c = r.comparison
        if c is None:
            out.append(f"{r.hypothesis.name}: {r.problem}")
            continue
        if c.verdict == UNDECIDED:
            needed = "" if c.needed_pairs is None else f"; ±{c.margin * 100:g} % needs about {c.needed_pairs:,} rounds"
            why = c.reason or ("" if c.detectable is None else f"catches ±{c.detectable * 100:.1f} %")
            out.append(f"{r.hypothesis.name}: undecided ({why}{needed})")
        out += [f"{r.hypothesis.name}: {note}" for note in c.quality.notes if note != c.reason]
        if c.returned is not None and c.returned.verdict != UNDECIDED:
            out.append(f"{r.hypothesis.name}: return is {c.returned.verdict} ({c.returned.a:.4g} → {c.returned.b:.4g})")
    return out


def _facts(x: Investigation) -> list[str]:
    out = [f"baseline: {x.baseline}", f"{x.rounds} rounds, all variants in turns; margin ±{x.margin * 100:g} %"]
    if x.baseline_rate is not None:
        rate = x.baseline_rate
        speed = f"{rate_text(rate.mid)} {bounds_text(rate.low, rate.high, rate_text)}".rstrip()
        out.append(f"baseline speed: {speed} {units_text(x.unit)} a second")
    return out


def investigation_text(x: Investigation) -> str:
    rows = [list(HEADS), *([escape(cell) for cell in _cells(r)] for r in x.results)]
    lines = [f"INVESTIGATION  {escape(x.name)}", *(escape(fact) for fact in _facts(x)), "", *align(rows, 44)]
    for title, items in _lists(x):
        lines += ["", title, *(f"  {escape(item)}" for item in items)]
    return "\n".join(lines)


def _lists(x: Investigation) -> list[tuple[str, list[str]]]:
    out = []
    if x.goals:
        out.append(("GOALS", [f"{g.name}: {g.wanted}: {g.status.upper()}  ({g.best})" for g in x.goals]))
    actions = [f"{i}. {text}" for i, text in enumerate(_actions(x), 1)]
    out.append(("ACTIONS, by measured gain", actions or ["nothing is shown to be faster"]))
    if doubts := _doubts(x):
        out.append(("OPEN", doubts))
    return out


# ---- Markdown ----


def _plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_{}\[\]()<>#+\-!|~&])", r"\\\1", escape(text))


def investigation_markdown(x: Investigation) -> str:
    lines = [f"# {_plain(x.name)}", "", *(f"- {_plain(fact)}" for fact in _facts(x)), ""]
    lines += [f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
    lines += [f"| {' | '.join(_plain(cell) for cell in _cells(r))} |" for r in x.results]
    for title, items in _lists(x):
        lines += ["", f"## {title.capitalize()}", "", *(f"- {_plain(item)}" for item in items)]
    return "\n".join(lines) + "\n"


# ---- HTML ----


def investigation_page(x: Investigation) -> str:
    measured = [(r.hypothesis, r.comparison) for r in x.results if r.comparison is not None]
    bars, hopes = [], []
    for h, c in measured:
        s = c.speedup
        bars.append(Bar(h.name, s.mid, s.low, s.high, f"{s.mid:.2f}x", c.verdict))
        hopes.append(h.expected)
    sections = [
        el("section", *(el("p", fact) for fact in _facts(x))),
        section("Measured against expected", *([draw_forest(bars, hopes)] if bars else []), _page_table(x)),
        *(section(title.capitalize(), el("ul", *(el("li", item) for item in items))) for title, items in _lists(x)),
    ]
    for h, c in measured:
        inner = comparison_sections(c, (), (x.baseline, h.command))
        sections.append(el("details", el("summary", f"{h.name}: {quality_text(c)}"), *inner))
    return page(x.name, *sections)


def _page_table(x: Investigation) -> Markup:
    rows = []
    for r in x.results:
        *cells, verdict, against = _cells(r)
        rows.append([*cells, el("td", verdict, class_=verdict), el("td", against, class_="words")])
    return table([*HEADS[:-1], el("th", HEADS[-1], class_="words")], rows)


# ---- JSON ----


def investigation_data(x: Investigation) -> dict[str, Any]:
    return {
        "version": VERSION,
        **pick(x, "name unit rounds margin baseline"),
        "results": [
            {
                **pick(r.hypothesis, "name command expected"),
                "confidence": r.hypothesis.confidence or None, "note": r.hypothesis.note or None, "problem": r.problem or None,
                "against_expectation": r.against or None,
                "comparison": comparison_data(r.comparison, (), (x.baseline, r.hypothesis.command)) if r.comparison else None,
            }
            for r in x.results
        ],
        "goals": [pick(g, "name wanted status best") for g in x.goals],
        "actions": [r.hypothesis.name for r in x.actions],
    }  # fmt: skip
