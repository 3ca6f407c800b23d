"""A step costs more the longer the run gets.

What to do: append instead of rewriting, look up instead of searching, and keep only what is still needed:

    known, recent = [], []                      # before: `if state in known` reads the whole list
    known, recent = set(), deque(maxlen=1000)   # after: one lookup; the last 1000 are kept

Something gets longer as training goes on, and every step goes through all of it: a list that is searched, a log that is
rewritten whole, a buffer that is copied.

Recognised by: the time one part of the loop takes per env step, at the end of the run against the beginning. Code between the
calls that HotLoop knows also counts if it got slower only through the first iterations, in a line that goes through a whole
collection. Ignore it if the work itself grows, as in a game whose board fills up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ....model.shard import WAIT, Place
from ...devices import BETWEEN
from ..evidence import ENV_METHODS, Evidence, Slice
from ..growth import MUCH_MB, Growing, memory_growth
from ..rule import Candidate, function_name

TURN = 100
ACTION = "append instead of rewriting, use a dict or set instead of searching a list, keep only the last N"
_OF_SAMPLING = (
    "draw indices in a way that takes no longer for a larger buffer: `rng.integers(size, size=64)`, not a shuffle of all"
)
LEAST_SHARE, LEAST_FACTOR = 0.12, 1.6
LEAST_LINE = 0.4  # of the time, in the one line that handles all there is
_WHOLE = re.compile(
    r"\b(list|tuple|set|dict|sorted|sum|max|min|any|all|deepcopy|copy|array|asarray|stack|concatenate|cat|tensor|choice|sample)\("
    r"|\.(copy|keys|values|items|index|count|sort|remove|tolist)\(|\bin\b"
)


def find(e: Evidence) -> Candidate | None:
    for grown in e.growing:
        if grown.factor < LEAST_FACTOR or grown.label == "learn/backward":
            continue
        slices = _culprits(e, grown.label)
        if grown.soon and (memory_growth(e) > MUCH_MB or not _handles_all(e, slices)):  # new memory costs more from then on
            continue
        share = e.share(slices)
        if share * grown.excess < LEAST_SHARE:
            continue
        where = e.blame(slices, ENV_METHODS if "env" in grown.label or "." in grown.label else ())
        return Candidate(
            _title(grown, function_name(where)),
            where,
            grown.label,
            tuple(slices),
            removes=min(1.0, 0.5 + 0.5 * grown.excess),
            action=_OF_SAMPLING if grown.label == "learn/sample" else "",
            evidence=(f"it took {grown.early_us:,.1f} µs per env step at the beginning, {grown.late_us:,.1f} µs at the end",),
        )
    return None


def _handles_all(e: Evidence, slices: Sequence[Slice]) -> bool:
    """Is most of it one line that goes through a whole collection? Else what rose may be training that began."""
    lines: Counter[Place] = Counter()
    for piece in slices:
        place = e.innermost(piece.places)
        if place is not None and _WHOLE.search(e.text(place)):
            lines[place] += round(piece.ns)
    return bool(lines) and lines.most_common(1)[0][1] >= LEAST_LINE * sum(x.ns for x in slices)


def _title(grown: Growing, function: str) -> str:
    growth = f"takes {grown.factor:.1f} × as long per step at the end of the run as at its beginning"
    return f"{function} {growth}" if grown.label == BETWEEN else f"{grown.label} {growth}, in {function}"


def _culprits(e: Evidence, label: str) -> list[Slice]:
    if label == BETWEEN:
        slices = e.where(lambda x: not x.labels)
    else:
        slices = [x for x in e.slices if x.label == label or (x.kind == WAIT and len(x.labels) > 1 and x.labels[-2] == label)]
    where = e.blame(slices, share=0.5)
    return [x for x in slices if any((p.file, p.function) == (where.file, where.function) for p in x.places)] or slices
