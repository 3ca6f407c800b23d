"""An analysis as plain text.

What lives here: an `Analysis` in, text out, and the cutting of texts to columns that charts use too. Invariant: names are
data: escaped, and cut to the columns they have.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from math import fsum
from unicodedata import combining, east_asian_width

from ..analyse.bottlenecks import CRITICAL, GPU_MEMORY, MEMORY, NOT_AT_WORK, SLOW, Advice, Analysis, Bottleneck
from ..model.ledger import UNATTRIBUTED
from ..printing.text import escape, join, losses_text, own_cost_text

TOP = 10
MOST_ADVICE = 20
MOST_PROBLEMS = 10
_BAR = 20


def analysis_text(analysis: Analysis, width: int = 80) -> str:
    """The ranking, the categories, why, where to look, and how far to trust it."""
    listing = analysis.listing
    parts = [f"{len(listing.entries)} operation{'s' * (len(listing.entries) != 1)}"]
    if listing.wall_s is not None:
        parts.append(f"wall {listing.wall_s:.3f} s")
    else:
        parts.append(f"summed time {analysis.base_s:.3f} s")
    if listing.coverage is not None:
        parts.append(f"coverage {listing.coverage:.1%}")
    blocks = [
        ["BOTTLENECK ANALYSIS: " + fit(escape(listing.source), width - 21).rstrip(), join(parts, width)],
        _table(analysis, width),
        _categories(analysis, width),
        _findings(analysis, width),
        _advice(analysis, width),
        _trust(analysis, width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


# ---- the table ----


def _table(analysis: Analysis, width: int) -> list[str]:
    top, more = analysis.bottlenecks[:TOP], analysis.bottlenecks[TOP:]
    digits = 4 if any(0 < b.avg_time_ms < 0.01 for b in top) else 2
    cells = [
        (
            printable(b.name),
            f"{b.score:.1f}",
            f"{b.time_percent:.1f}",
            _milliseconds(b.avg_time_ms, digits),
            f"{b.call_count:,}",
        )
        for b in top
    ]
    sums = []
    if more:
        sums.append(_sum_row(f"({len(more)} more {_operations(len(more))})", more))
    if analysis.rare:
        n = len(analysis.rare)
        sums.append(_sum_row(f"({n} {_operations(n)} with fewer than {analysis.min_calls} calls)", analysis.rare))
    unattributed = _unattributed_percent(analysis)
    if unattributed is not None:
        sums.append(("(unattributed: in no operation)", "", f"{unattributed:.1f}", "", ""))
    heads = ("Operation", "Score", "Time%", "Avg(ms)", "Calls")
    sizes = [max(len(row[i]) for row in (heads, *cells, *sums)) for i in range(1, 5)]
    level_size = 10  # GPU MEMORY
    name_size = width - sum(sizes) - level_size - 2 * 5
    rule = "-" * width

    def line(row: Sequence[str], level: str = "") -> str:
        numbers = "".join("  " + text.rjust(size) for text, size in zip(row[1:], sizes, strict=True)) + "  " + level
        return (fit(row[0], name_size) + numbers).rstrip()

    def sum_line(row: Sequence[str]) -> str:
        # It has no score: its text may run on into that column.
        room = name_size + 2 + sizes[0]
        text = row[0] if len(row[0]) <= room else row[0].replace("operations", "op.")
        return (fit(text, room) + "".join("  " + t.rjust(size) for t, size in zip(row[2:], sizes[1:], strict=True))).rstrip()

    lines = [f"TOP {TOP} BOTTLENECKS:", rule, line(heads, "Level"), rule]
    for row, b in zip(cells, top, strict=True):
        first, *others = b.levels or ("",)
        lines.append(line(row, first))
        lines += [" " * (width - level_size) + level for level in others]
    if not top:
        lines.append(_nothing(analysis))
    lines += [sum_line(row) for row in sums]
    lines.append(rule)
    for text in _explain(analysis, bool(sums)):
        lines += _paragraph(text, width)
    return lines


def _sum_row(text: str, rows: Sequence[Bottleneck]) -> tuple[str, str, str, str, str]:
    """Operations that have no row of their own: their own time, so that nested ones are not counted twice."""
    percent = fsum(_own_percent(b) for b in rows)
    return text, "", f"{min(100.0, percent):.1f}", "", _count(sum(b.call_count for b in rows))


def _unattributed_percent(analysis: Analysis) -> float | None:
    known = [c.percent for c in analysis.beside if c.name == UNATTRIBUTED]
    if known or analysis.listing.coverage is None:
        return known[0] if known else None
    return 100 * (1 - analysis.listing.coverage)


def _own_percent(b: Bottleneck) -> float:
    return b.time_percent if b.own_percent is None else b.own_percent


def _nothing(analysis: Analysis) -> str:
    if not analysis.rare:
        return "no operation was recorded"
    return f"no operation has {analysis.min_calls} calls or more; --min-calls 1 shows all"


def _explain(analysis: Analysis, sums: bool) -> list[str]:
    if analysis.ours:
        text = "Time% is the share of the wall time in which the operation was open; nested operations share it."
        lines = [text + " Rows in parentheses: own time only." * sums]
    else:
        lines = [
            "Time% is of the sum of all operations, as this report has no wall time: nested operations count more than once, "
            "and time in no operation is not in it."
        ]
    flagged = [b for b in analysis.rare if b.levels]
    if flagged:
        names = ", ".join(f"{fit(printable(b.name), 30).rstrip()} ({', '.join(b.levels)})" for b in flagged[:3])
        names += f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
        lines.append(f"Rarely called, but flagged: {names}; --min-calls 1 ranks them too.")
    return lines


# ---- categories ----


def _categories(analysis: Analysis, width: int) -> list[str]:
    if not analysis.categories and not analysis.beside:
        return []
    of = _base_text(analysis)
    rows = [*analysis.categories, *analysis.beside]
    size = min(16, max(8, *(_columns(printable(c.name)) for c in rows)))
    waits = any(c.waiting_percent for c in rows)
    lines = [f"CATEGORIES ({of}):", f"{fit('Category', size)}  Share%     Time(s){'  Waits%' * waits}  Operations"]
    for c in rows:
        waiting = f"  {c.waiting_percent:6.1f}" if c.operations else " " * 8
        count = f"{c.operations:,}" if c.operations else ""
        bar = "█" * round(c.percent / 100 * _BAR)
        line = f"{fit(printable(c.name), size)}  {c.percent:6.1f}  {c.time_s:10.3f}{waiting * waits}  {count:>10}  {bar}"
        lines.append(_cut(line.rstrip(), width))
    return lines


def _base_text(analysis: Analysis) -> str:
    if not analysis.ours:
        return "% of the sum of all operations, nested ones counted again"
    if analysis.listing.books is not None:
        return "own time, % of wall"
    if analysis.base_s > (analysis.listing.wall_s or 0.0):
        return "own time, % of all threads' own time"
    return f"own time, % of wall; {NOT_AT_WORK}: waiting, no operation, profiler"


# ---- advice and trust ----


def _findings(analysis: Analysis, width: int) -> list[str]:
    """What to change, as the report brought it along."""
    lines = ["FINDINGS:"] if analysis.listing.findings else []
    for number, text in enumerate(analysis.listing.findings, 1):
        lines += textwrap.wrap(escape(text), width, initial_indent=f"{number:>2}. ", subsequent_indent="    ")
    return lines


def _advice(analysis: Analysis, width: int) -> list[str]:
    if not analysis.advice:
        return (
            ["RECOMMENDATIONS: none; no ranked operation is CRITICAL, SLOW or large in memory."] if analysis.bottlenecks else []
        )
    lines = [f"RECOMMENDATIONS ({'largest possible gain' if analysis.ours else 'largest share'} first):"]
    for number, advice in enumerate(analysis.advice[:MOST_ADVICE], 1):
        lines += _one_advice(number, advice, analysis, width)
    if len(analysis.advice) > MOST_ADVICE:
        lines.append(f"    and {len(analysis.advice) - MOST_ADVICE} more: --detailed FILE.json holds all")
    return lines


def _one_advice(number: int, advice: Advice, analysis: Analysis, width: int) -> list[str]:
    b = advice.operation
    tail = f"  [{fit(escape(b.category), 16).rstrip()}]  {', '.join(b.levels)}"
    head = f"{number:>2}. "
    lines = [head + fit(printable(b.name), width - len(head) - _columns(tail)).rstrip() + tail]
    for text in filter(None, (_facts(advice, analysis), advice.text)):
        lines += textwrap.wrap(text, width, initial_indent="    ", subsequent_indent="    ")
    return lines


def _facts(advice: Advice, analysis: Analysis) -> str:
    """What earned it its levels, in figures."""
    b = advice.operation
    if not analysis.ours:
        gain = f"{b.time_percent:.1f}% of the summed time"
    elif b.own is None or b.own.waiting_s is None:
        gain = f"open for {b.time_percent:.1f}% of the wall time"
    else:
        gain = f"open for {b.time_percent:.1f}% of the wall time, at most {advice.gain_percent:.1f}% to gain"
    by_level = {
        CRITICAL: gain,
        SLOW: f"{_milliseconds(b.avg_time_ms)} ms a call",
        MEMORY: f"peak {b.memory_peak_mb or 0:,.0f} MB",
        GPU_MEMORY: f"GPU peak {b.gpu_memory_peak_mb or 0:,.0f} MB",
    }
    return ", ".join([gain, *(by_level[level] for level in b.levels if level != CRITICAL)]) + "."


def _trust(analysis: Analysis, width: int) -> list[str]:
    listing = analysis.listing
    parts = []
    if listing.losses is not None:
        parts.append(losses_text(listing.losses))
    if listing.own_cost is not None:
        cost = listing.own_cost
        parts.append(own_cost_text(cost.ns_per_span, cost.error_ns, cost.share))
    if not parts:
        parts.append("not stated by this report (losses, own cost)")
    if listing.lower_bounds:
        parts.append(
            f"Time% of {listing.lower_bounds} {_operations(listing.lower_bounds)} is a lower bound (several processes)"
        )
    lines = join(["quality: " + parts[0], *parts[1:]], width).split("\n")
    for text in listing.problems[:MOST_PROBLEMS]:
        lines += _paragraph(f"note: {escape(text)}", width)
    if len(listing.problems) > MOST_PROBLEMS:
        lines.append(f"note: and {len(listing.problems) - MOST_PROBLEMS} more: --detailed FILE.json holds all")
    return lines


# ---- fitting ----


def _paragraph(text: str, width: int) -> list[str]:
    lines = textwrap.wrap(text, width, subsequent_indent="  ")
    wide = max((_columns(line) - len(line) for line in lines), default=0)  # characters that take two columns
    return textwrap.wrap(text, max(20, width - wide), subsequent_indent="  ") if wide > 0 else lines


def _operations(count: int) -> str:
    return "operation" if count == 1 else "operations"


def _milliseconds(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if value < 1000 else f"{value:,.0f}" if value < 1e7 else f"{value:.2e}"


def _count(value: int) -> str:
    return f"{value:,}" if value < 10**10 else f"{value:.2e}"


def printable(name: str) -> str:
    """A name that can be seen and does nothing else."""
    return escape(name[:1000]) if name.strip() else "(no name)"


def fit(text: str, columns: int) -> str:
    """The text in exactly so many terminal columns: cut in its middle, or filled up; wide characters count twice.

    >>> fit("env_step", 10), fit("env_step_of_worker_12", 11), fit("環境歩行", 5)
    ('env_step  ', 'env_s…er_12', '環…行')
    """
    if _columns(text) > columns:
        head = _cut(text, columns // 2)
        text = head + "…" + _cut(text[::-1], columns - 1 - _columns(head))[::-1]
    return text + " " * (columns - _columns(text))


def _cut(text: str, columns: int) -> str:
    used = 0
    for at, char in enumerate(text):
        used += _columns(char)
        if used > columns:
            return text[:at]
    return text


def _columns(text: Iterable[str]) -> int:
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
