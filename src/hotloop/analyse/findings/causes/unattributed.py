"""More than 5 % of the wall time has no owner.

Neither a hooked call nor a span of yours covers this time, and it lies between no two events.

Recognised by: what is left of the main thread's lifetime.

What to do: look at its lines in the report; put `with profile("name")` around what you want to see.
"""

from __future__ import annotations

from ....model.finding import Gain
from ..evidence import Evidence
from ..rule import Candidate, percent

ACTION = "put `with profile(...)` around the lines shown, to name them"
LEAST_SHARE = 0.05


def find(e: Evidence) -> Candidate | None:
    share = e.diagnosis.phases.unattributed_ns / e.loop_ns
    if share < LEAST_SHARE:
        return None
    where = e.blame(e.where(lambda x: not x.labels))
    return Candidate(
        f"{percent(share)} of the time has no owner",
        where,
        "(no span open)",
        (),
        share=share,
        gain=Gain(1.0, 1.0, 1 / (1 - min(0.9, share))),
    )
