"""Compilation or start-up cost mistaken for steady state.

The first iterations are much slower than the rest: compilation, caches, lazily loaded libraries.

Recognised by: change points in the time per iteration; and start-up against the loop.

What to do: nothing, if the run is long; leave them out when you compare.
"""

from __future__ import annotations

from ....model.finding import Gain
from ..evidence import Evidence, Where
from ..growth import warm_up
from ..rule import Candidate, Cause, percent

CAUSE = Cause(
    "warm-up",
    "compilation or start-up cost mistaken for steady state",
    "leave the first iterations out when you compare; a long run is not affected",
)
LEAST_SHARE = 0.15


def look(e: Evidence) -> Candidate | None:
    found = warm_up(e)
    if found is None or found.share < LEAST_SHARE:
        return None
    where = e.blame(e.slices) if e.slices else Where()
    return Candidate(
        CAUSE,
        f"the first {found.iterations} iterations took {percent(found.share)} of the loop, "
        f"{found.factor:.1f} × as long each as the rest",
        where,
        "warm-up",
        (),
        share=found.share,
        gain=Gain(1.0, 1.0, 1 / max(0.05, 1 - found.share)),
        evidence=(f"steady from iteration {found.iterations} on",),
    )
