"""Names as other people's viewers can take them: valid Unicode, of bounded length, with the whole path in one line.

What lives here: cleaning, quoting and the stacks of the session's tree. Invariant: `quote` answers ASCII that any JSON
reader accepts, whatever the name was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from ...model import shard as m
from ...model.ledger import Ledger

NAME_CHARS = 256  # a name may be a megabyte, and a trace repeats it a million times
PATH_CHARS = 512
MAX_DEPTH = 128  # stacks deeper than that are shown without their middle
UNATTRIBUTED = "(unattributed)"
SPAN_COST = ("(profiler)", "(cost of spans)")  # calibrated and subtracted; "(profiler)" itself was timed


def clean(name: str, limit: int = NAME_CHARS) -> str:
    """The name without half characters, cut to a bounded length.

    >>> clean("env\\ud800step"), clean("x" * 1000)[-2:]
    ('env\ufffdstep', 'x…')
    """
    if len(name) > limit:
        name = name[: limit - 1] + "…"
    # Strict readers refuse a lone surrogate even when it is escaped.
    return name.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def quote(text: str) -> str:
    """A JSON string in ASCII."""
    return json.dumps(text)


class Stacks:
    """The session's tree, read from the leaf: the names above every branch."""

    def __init__(self, ledger: Ledger) -> None:
        self._tree = ledger.tree
        self._branch_of = ledger.branch_of
        self._depth: list[int] = []
        self._bend: list[int] = []  # per branch, the one above it where a stack that is too deep is cut
        for number, branch in enumerate(ledger.tree):  # parents come first
            depth = self._depth[branch.parent] + 1 if branch.parent >= 0 else 0
            self._depth.append(depth)
            self._bend.append(self._bend[branch.parent] if depth > MAX_DEPTH // 2 else number)

    def names(self, branch: int) -> list[str]:
        """Outermost first. What no span was open for has a name of its own, so that sums stay whole."""
        names = [clean(self._tree[b].name) if b >= 0 else "…" for b in self._chain(branch)]
        return names or [UNATTRIBUTED]

    def path(self, shard: int, path: int) -> str:
        """For people: labels only, and of a very long path its end."""
        shown = self._chain(self._branch_of[shard][path])
        text = " > ".join(
            clean(self._tree[b].name) if b >= 0 else "…" for b in shown if b < 0 or self._tree[b].kind != m.HANDOFF
        )
        return text if len(text) <= PATH_CHARS else "…" + text[1 - PATH_CHARS :]

    def _chain(self, branch: int) -> list[int]:
        """The branch and those above it, outermost first, without the root; -1 stands for the middle of a deep one."""
        if self._depth[branch] <= MAX_DEPTH:
            chain = list(self._upwards(branch))
        else:
            chain = [*islice(self._upwards(branch), MAX_DEPTH // 2), -1, *self._upwards(self._bend[branch])]
        return [b for b in reversed(chain) if b < 0 or self._tree[b].kind != m.ROOT]

    def _upwards(self, branch: int) -> Iterator[int]:
        while branch >= 0:
            yield branch
            branch = self._tree[branch].parent
