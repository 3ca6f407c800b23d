"""What the sections of the terminal report draw with: fills, bars, lists of facts that wrap.

Nothing is known by colour alone: work is █, inferred ▓, waiting ░, unattributed ▒, profiler ·.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from textwrap import wrap

from rich.table import Table
from rich.text import Text

from ..model.ledger import PROFILER, UNATTRIBUTED, WAITING, Balance
from ..model.sheet import KINDS, SPAN

INFERRED = "inferred"  # in the loop's bars, where work that was measured and work that was not stand side by side
FAINT = "bright_black"
STYLE = {SPAN: "blue", INFERRED: "cyan", WAITING: "yellow", UNATTRIBUTED: "magenta", PROFILER: FAINT}
FILL = {SPAN: "█", INFERRED: "▓", WAITING: "░", UNATTRIBUTED: "▒", PROFILER: "·"}
WORD = {SPAN: "work", WAITING: "waiting", UNATTRIBUTED: "unattributed", PROFILER: "profiler"}
_ORDER = (SPAN, INFERRED, *KINDS[1:])


def balance_parts(b: Balance) -> dict[str, int]:
    """What a track's lifetime consists of, by kind."""
    return {SPAN: b.exclusive_ns, WAITING: b.waiting_ns, UNATTRIBUTED: b.unattributed_ns, PROFILER: b.profiler_ns}


def draw_bar(mix: Mapping[str, int], whole: int, width: int) -> Text:
    """The parts of a row, by kind, against the whole."""
    text, at, before = Text(), 0, 0
    for kind in _ORDER:
        at += mix.get(kind, 0)
        upto = round(width * at / whole) if whole else 0
        text.append(FILL[kind] * (upto - before), style=STYLE[kind])
        before = upto
    if not before and any(mix.values()):
        text.append("▏", style=FAINT)
    return text


def make_table(first: str, *heads: str, room: int, gap: int = 2, left: Container[str] = ()) -> Table:
    """A table of numbers, on the right of their columns, whose first column, the names, gives way."""
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="bold", expand=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis", max_width=room)
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", no_wrap=True)
    return table


def join_facts(parts: Iterable[str], width: int, indent: str = "") -> str:
    """`a · b · c`, broken where the terminal ends."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 3 + len(part) > width - len(indent):
            lines.append("")
        lines[-1] += f" · {part}" if lines[-1] else part
    return "\n".join(indent + line for line in lines)


def fold_text(text: str, width: int, first: str = "  ", later: str = "    ", style: str = "") -> list[Text]:
    """A sentence over several lines."""
    rows = wrap(text, max(20, width), initial_indent=first, subsequent_indent=later, break_on_hyphens=False)
    return [Text(row, style=style) for row in rows]
