"""Python's garbage collector takes a visible share.

What to do: remove `gc.collect()` from the loop. Keep fewer small objects (arrays instead of lists of tuples). If that is not
enough, call `gc.freeze()` once after start-up, or `gc.set_threshold(50_000, 20, 20)`, which takes more memory.

So many objects are alive, or made, that the cyclic collector often stops the program to go through them. Recognised by: pauses
the collector reports itself."""

from __future__ import annotations

import re

from ....model.shard import GC_PAUSE
from ..evidence import Evidence
from ..rule import Candidate, claim, total

TURN = 70
ACTION = "no gc.collect() in the loop, arrays instead of many small objects, gc.freeze() after start-up, or a higher threshold"
TITLE = "{share} of the training loop is garbage collection, most of it while in {function}"
LEAST_SHARE = 0.08
# Of pauses, what goes: those a line of yours asks for are gone without it; of those the collector makes by itself, fewer
# objects and higher thresholds leave some.
ASKED, BY_ITSELF = 0.99, 0.88
_ASKS = re.compile(r"\bgc\.collect\(")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: x.label == GC_PAUSE)
    said = f"the collector ran {sum(o.calls for o in e.diagnosis.operations if o.name == GC_PAUSE):,} times"
    asked = sum(x.ns for x in found if (own := e.innermost(x.places)) and _ASKS.search(e.text(own)))
    removes = (asked * ASKED + (total(found) - asked) * BY_ITSELF) / max(1.0, total(found))
    return claim(e, found, GC_PAUSE, TITLE, LEAST_SHARE, said, held=0.3, removes=removes)
