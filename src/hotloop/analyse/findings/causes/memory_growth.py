"""Memory keeps growing to the end of the run.

What to do: find what is never thrown away (lists of observations, tensors with graphs, caches) and bound it:
`deque(maxlen=10_000)` instead of a list, `loss.item()` instead of `loss`, `lru_cache(maxsize=1000)`.

Memory alone does not slow the loop, but a longer run may be killed. Recognised by: the memory of the processes, still rising
steadily in the last half, by 150 MB or more. Ignore it if a replay buffer is still filling and will fit when it is full."""

from __future__ import annotations

import re

from ..evidence import Evidence
from ..growth import MUCH_MB, memory_growth, memory_mb
from ..rule import Candidate, Expected

TURN = 320
ACTION = "find what is never thrown away (observations, tensors with graphs, caches) and keep only the last N"
_KEEPS = re.compile(r"\.(append|extend|add|insert|setdefault|push|store|write)\(")


def find(e: Evidence) -> Candidate | None:
    grown = memory_growth(e)
    first, last = memory_mb(e)
    if grown < MUCH_MB or last < 1.25 * first:
        return None
    keeping = e.where(lambda x: any(e.is_yours(p) and _KEEPS.search(e.text(p)) for p in x.places[-3:]))
    where = e.blame(keeping, share=0.3) if keeping else e.blame(e.slices)
    return Candidate(
        f"memory rose from {first:,.0f} to {last:,.0f} MB and was still rising at the end",
        where,
        "memory",
        share=0.0,
        gain=Expected(1.0, 1.2),
        evidence=(f"it rose by {grown:,.0f} MB in the later part of the run",),
    )
