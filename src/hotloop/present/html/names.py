"""Names as the page may show them, each written once.

What lives here: escaping, shortening, numbering. Invariant: what `show` answers holds no control, bidirectional or half
characters and is never longer than asked for.
"""

from __future__ import annotations

from ...printing.text import escape


def show(text: str, limit: int = 2000) -> str:
    """A text nobody vouches for, as it may be shown: nothing hidden in it, and no longer than the limit.

    >>> show("a\\u202eb"), show("x" * 10, 7), show("  ")
    ('a\\\\u202eb', 'xxxx…xx', '"  "')
    """
    shown = escape(text if len(text) <= 2 * limit else text[:limit] + text[-limit:])
    if len(shown) <= limit:
        return shown if shown.strip() or not shown else f'"{shown}"'
    tail = limit // 3
    return shown[: limit - 1 - tail] + "…" + shown[len(shown) - tail :]


class Names:
    """Every label once; rows refer to it by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)

    def finish(self, most_chars: int, room: int) -> list[str]:
        """The names as they are shown. Where many long ones do not fit, all long ones are shortened to the same length."""
        shown = [show(name, most_chars) for name in self._numbers]
        while most_chars > 20 and sum(map(len, shown)) > room:
            most_chars //= 2
            shown = [show(name, most_chars) for name in shown]
        return shown
