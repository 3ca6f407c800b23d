"""More than 5 % of the loop could not be assigned to anything.

What to do: find its lines in the report, and put `with profile("name"):` around them (`from hotloop import profile`).

HotLoop does not know what this time was for; your program need not be at fault. Recognised by: no known call and no span of
yours covers it, and it lies between no two of them. A span around everything (`with profile("train"):`) does not count."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, Expected, percent

TURN = 350
ACTION = "put `with profile(...)` around the lines shown, to name them"
LEAST_SHARE = 0.05


def find(e: Evidence) -> Candidate | None:
    share = e.diagnosis.phases.unattributed_ns / e.loop_ns
    if share < LEAST_SHARE:
        return None
    where = e.blame(e.where(lambda x: not x.labels))
    return Candidate(
        f"{percent(share)} of the loop could not be assigned to anything",
        where,
        "(no span open)",
        share=share,
        gain=Expected(1.0, 1 / (1 - min(0.9, share))),
    )
