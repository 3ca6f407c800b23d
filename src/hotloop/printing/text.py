"""Text as it may be shown: names that cannot drive a terminal, lines that fit, sentences that several views say.

What lives here: plain strings in, plain strings out, by the standard library alone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence

from ..model import shard as m


def escape(name: str) -> str:
    """A label as it may be shown: nothing in it can move the cursor, colour the terminal or turn the text around."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in name)


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def join(parts: Sequence[str], width: int) -> str:
    """`a | b | c`, broken where the terminal ends."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" | {part}"
        else:
            lines.append(f"  {part}")
    return "\n".join(lines)


def align(rows: Sequence[Sequence[str]], most: int = 1000, place: Callable[[str, int], str] = str.ljust) -> list[str]:
    """A table's lines. Columns are cut to `most` characters, but not the last, which may run on; the first is a name.

    >>> align([["a", "bc", "d"], ["abc", "b", "more"]], 2)
    ['a   bc  d', 'ab  b   more']
    """
    widths = [min(most, max(map(len, column))) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        *cells, last = [
            (place if i else str.ljust)(cell, width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join([*(cell[:most] for cell in cells), last]).rstrip())
    return lines


def losses_text(losses: dict[str, int]) -> str:
    lost = {name: n for name, n in losses.items() if name not in m.HARMLESS_LOSSES}
    return "losses " + (", ".join(f"{name} {n:,}" for name, n in lost.items()) if lost else "none")


def own_cost_text(cost_ns: float, error_ns: float, share: float) -> str:
    return f"own cost {cost_ns:.0f} ± {error_ns:.1f} ns a span, {share:.2%} of the time, subtracted"


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 24)).columns
