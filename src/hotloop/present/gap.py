"""`explain-gap` as text, HTML and JSON.

What lives here: a `Gap` in, documents out. The amounts shown are the exact parts; names are escaped.
"""

from __future__ import annotations

import math
from typing import Any

from ..analyse.gap import CALLS, COST, EPISODES, STEPS, WORK, Cause, Gap
from ..printing.text import align, escape
from .comparison import signed_text
from .html.plain import el, page, section, table
from .tables import pick
from .units import duration_text

VERSION = 1
SHOWN = 15
FACTORS = (EPISODES, STEPS, WORK, CALLS, COST)
_SIDE = "name total_ns episodes steps step_unit"


def cause_text(cause: Cause) -> str:
    ratio = "new" if math.isinf(cause.ratio) else "gone" if cause.ratio == 0 else f"×{cause.ratio:.2f}"
    names = ", ".join(escape(name) for name in cause.components[:4]) + (" …" if len(cause.components) > 4 else "")
    if not cause.components:
        return f"{'longer' if cause.ratio > 1 else 'shorter'} episodes ({ratio} {cause.factor})"
    if cause.factor == CALLS:
        return f"{'more' if cause.ratio > 1 else 'fewer'} calls per step ({ratio}): {names}"
    return f"{'dearer' if cause.ratio > 1 else 'cheaper'} calls ({ratio}): {names}"


def headline(gap: Gap) -> list[str]:
    small, large = (duration_text(s.total_ns) for s in (gap.small, gap.large))
    what = EPISODES if EPISODES in gap.by_factor else WORK
    beyond = gap.ratio / gap.expected_ratio
    product = " × ".join(f"{gap.factors[f]:.3g} {f}" for f in FACTORS if f in gap.factors)
    apart = []
    if gap.outside is not None:
        before, after = gap.outside.small_ns, gap.outside.large_ns
        apart = [
            f"outside the loop: {duration_text(before)} → {duration_text(after)} ({signed_text(after - before)}), not ranked"
        ]
    return [
        f"{small} → {large}: ×{gap.ratio:.3g}",
        f"in proportion to the {what} (×{gap.expected_ratio:.3g}): {duration_text(gap.small.total_ns * gap.expected_ratio)}; "
        f"it is {beyond:.3g} times that",
        f"×{gap.ratio:.4g} = {product}",
        *apart,
    ]


def counts_text(gap: Gap) -> str:
    rows = []
    for side in (gap.small, gap.large):
        per = f", {side.steps / side.episodes:,.1f} per episode" if side.episodes else ""
        episodes = f"{side.episodes:,} episodes, " if side.episodes else ""
        rows.append(f"{escape(side.name)}: {episodes}{side.steps:,} {escape(side.step_unit)}{per}")
    return "\n".join(rows)


def _factors(gap: Gap) -> list[str]:
    """Those that this gap is split into, in the order of the columns."""
    return [f for f in FACTORS if f in gap.by_factor]


def _cells(gap: Gap) -> list[list[str]]:
    shown = _factors(gap)
    rows = [("total", gap.small.total_ns, gap.large.total_ns, gap.by_factor)]
    rows += [(escape(p.name), p.small_ns, p.large_ns, p.by_factor) for p in gap.parts]
    return [
        [name, duration_text(small), duration_text(large), *(signed_text(by_factor.get(f, 0)) for f in shown)]
        for name, small, large, by_factor in rows
    ]


def gap_text(gap: Gap) -> str:
    heads = ["component", "small", "large", *_factors(gap)]
    lines = [counts_text(gap), *headline(gap), "", "the difference, split exactly (rows and columns add up)"]
    lines += align([heads, *_cells(gap)[: SHOWN + 1]], 36, str.rjust)
    if len(gap.parts) > SHOWN:
        rest = gap.parts[SHOWN:]
        lines.append(f"… {len(rest)} more with {signed_text(sum(p.large_ns - p.small_ns for p in rest))}; all are in --json")
    lines += ["", "beyond what was expected, largest first"]
    whole = gap.large.total_ns - gap.small.total_ns
    for i, cause in enumerate(gap.causes[:8], 1):
        share = f"{cause.ns / whole * 100:.1f} % of the difference" if whole else ""
        lines.append(f"  {i}. {signed_text(cause.ns)}  {share}  {cause_text(cause)}")
    return "\n".join(lines)


def gap_page(gap: Gap) -> str:
    heads = ["component", "small", "large", *_factors(gap)]
    causes = [el("li", f"{signed_text(c.ns)}: {cause_text(c)}") for c in gap.causes[:20]]
    return page(
        "Explained gap",
        el("section", *(el("p", line) for line in [*counts_text(gap).splitlines(), *headline(gap)])),
        section("Beyond what was expected", el("ol", *causes)),
        section("The difference, split exactly", table(heads, _cells(gap))),
    )


def gap_data(gap: Gap) -> dict[str, Any]:
    return {
        "version": VERSION,
        "small": pick(gap.small, _SIDE),
        "large": pick(gap.large, _SIDE),
        **pick(gap, "ratio expected_ratio factors"),
        "difference_ns": gap.large.total_ns - gap.small.total_ns,
        "by_factor_ns": gap.by_factor,
        "components": [
            {**pick(p, "name small_ns large_ns"), "by_factor_ns": p.by_factor, "ratios": p.ratios} for p in gap.parts
        ],
        "causes": [_cause_data(cause) for cause in gap.causes],
    }


def _cause_data(c: Cause) -> dict[str, Any]:
    ratio = c.ratio if math.isfinite(c.ratio) else None
    return {"factor": c.factor, "components": list(c.components), "ratio": ratio, "ns": c.ns, "text": cause_text(c)}
