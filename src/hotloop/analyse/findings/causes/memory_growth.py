"""Memory grows without a plateau.

Memory rises to the end of the run, more than a replay buffer that is still filling explains.

Recognised by: the memory of the processes over time: still rising steadily in the last half.

What to do: find what is kept: lists of observations, tensors with graphs, caches without a bound.
"""

from __future__ import annotations

import re

from ....model.finding import Gain
from ..evidence import Evidence
from ..growth import MUCH_MB, memory_growth, memory_mb
from ..rule import Candidate

ACTION = "bound what is kept: observations, tensors with graphs, caches"
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
        (),
        share=0.0,
        gain=Gain(1.0, 1.0, 1.2),
        evidence=(f"{grown:,.0f} MB in the later part of the run",),
    )
