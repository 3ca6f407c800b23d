"""Memory keeps growing to the end of the run.

What to do: find what is never thrown away (lists of observations, tensors with graphs, caches) and bound it:
`deque(maxlen=10_000)` instead of a list, `loss.item()` instead of `loss`, `lru_cache(maxsize=1000)`.

A longer run may be killed, and every copy that is kept goes into memory the system has to hand out first, which takes longer
than the copy. Recognised by: the memory of the processes, still rising steadily in the last half, by 150 MB or more. A gain is
told where the copying in the lines that keep takes 10 % of the loop or more. Ignore it if a replay buffer is still filling and
will fit when it is full."""

from __future__ import annotations

import re

from ....model.mechanism import MOVING
from ..evidence import Evidence
from ..growth import MUCH_MB, memory_growth, memory_mb
from ..rule import Candidate, Expected, main_mechanism, percent

TURN = 315
LEAST_SHARE = 0.10
ACTION = "find what is never thrown away (observations, tensors with graphs, caches) and keep only the last N"
_KEEPS = re.compile(r"\.(append|extend|add|insert|setdefault|push|store|write)\(")


def find(e: Evidence) -> Candidate | None:
    grown = memory_growth(e)
    first, last = memory_mb(e)
    if grown < MUCH_MB or last < 1.25 * first:
        return None
    keeping = e.where(lambda x: any(e.is_yours(p) and _KEEPS.search(e.text(p)) for p in x.places[-3:]))
    where = e.blame(keeping, share=0.3) if keeping else e.blame(e.slices)
    copies = tuple(x for x in keeping if x.index not in e.claimed and main_mechanism([x]) == MOVING)
    title = f"memory rose from {first:,.0f} to {last:,.0f} MB and was still rising at the end"
    said = f"it rose by {grown:,.0f} MB in the later part of the run"
    if e.share(copies) >= LEAST_SHARE:
        copying = f"copying what is kept takes {percent(e.share(copies))} of the loop"
        return Candidate(title, e.blame(copies), "memory", copies, removes=0.95, evidence=(said, copying))
    return Candidate(title, where, "memory", share=0.0, gain=Expected(1.0, 1.2), evidence=(said,))
