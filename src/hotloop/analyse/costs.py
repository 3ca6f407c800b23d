"""What an instruction of the user's costs each time, where it is known how often it ran at most.

What lives here: the loops that steps of environments and updates are made in, and the time of instructions that stand in no
other loop. Such an instruction ran once in each call of the span it is in, or once in each step and update, at most. So its
time over these is what it takes at least. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..model import shard as m
from ..model.code import is_yours
from ..model.ledger import Ledger
from ..model.session import Source
from .lines import Stack

_EVENTS = ("env_step", "env_reset", "backward", "optimizer")
_OFTEN = ("<lambda>", "comp>", "<genexpr>")  # called by something that may do so again and again
Block = tuple[str, int, int]  # file, first and last line


class Costs:
    def __init__(self, stacks: Sequence[Stack], ledger: Ledger, sources: Mapping[str, Source], loop_ns: int) -> None:
        self._tree, self._sources = ledger.tree, sources
        main = next((b.track for b in ledger.balances if b.shard == 0), 0)
        seen = [x for x in stacks if (x.shard, x.track, x.early) == (0, main, False)]
        self._around = {block for x in seen if self._is_event(x.branch) for p in x.places for block in self._loops(p)}
        self._turns = sum(x.calls for x in ledger.tree if x.name.rpartition("/")[2] in ("env_step", "optimizer"))
        each = loop_ns / max(1, sum(x.count for x in seen))
        self._ns: Counter[tuple[m.Place, int]] = Counter()
        for stack in seen:
            place, rounds = self._bounded(stack), self._rounds(stack.branch)
            if place is not None and rounds:
                self._ns[place, stack.branch] += stack.count * each / rounds  # type: ignore[assignment]

    def of(self, stack: Stack) -> float:
        """Nanoseconds that the instruction of the user's takes each time, at least; 0: not known."""
        place = self._bounded(stack)
        return self._ns[place, stack.branch] if place is not None and stack.shard == 0 else 0.0

    def _rounds(self, branch: int) -> int:
        """How often the span was entered; between spans, how often the loop went round."""
        at = self._tree[branch]
        return self._turns if at.kind in (m.ROOT, m.INFERRED) else at.calls

    def _bounded(self, stack: Stack) -> m.Place | None:
        """The innermost instruction of the user's, if no loop but those of the training is around it."""
        own = [p for p in stack.places if is_yours(p.file)]
        names = [(p.file, p.function) for p in own]
        if not own or len(set(names)) < len(names) or any(p.function.endswith(_OFTEN) for p in own):
            return None
        if not all(self._is_known(p.file) for p in own):
            return None
        return own[-1] if all(block in self._around for p in own for block in self._loops(p)) else None

    def _is_known(self, file: str) -> bool:
        source = self._sources.get(file)
        return source is not None and bool(source.blocks or source.functions)

    def _loops(self, place: m.Place) -> list[Block]:
        source = self._sources.get(place.file)
        if source is None:
            return []
        return [(place.file, a, b) for _, a, b in source.loops_around(place.line, place.first_line)]

    def _is_event(self, branch: int) -> bool:
        while branch >= 0 and self._tree[branch].kind != m.ROOT:
            if self._tree[branch].name.rpartition("/")[2] in _EVENTS:
                return True
            branch = self._tree[branch].parent
        return False
