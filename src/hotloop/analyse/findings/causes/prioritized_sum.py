"""O(N) priority sampling.

Priorities are summed or turned into probabilities over the whole buffer for every batch, so sampling gets slower as the buffer
fills.

Recognised by: time in sampling functions at lines that sum, normalise or search priorities.

What to do: keep the sums in a tree (a sum tree or segment tree), so that a draw and an update cost the logarithm of the size.
"""

from __future__ import annotations

import re

from ..evidence import Evidence, Slice
from ..rule import Candidate, function_name, per_call, percent

ACTION = "keep priorities in a sum tree: drawing and updating cost log N"
LEAST_SHARE = 0.12
_SUMS = re.compile(
    r"cumsum|searchsorted|accumulate|random\.choices|choice\([^)]*\bp\s*=|multinomial|prior\w*[^=]*(\.sum\(|/|\*\*)|sum\([^)]*prior"
    r"|probs?\s*=|weights?\s*/",
    re.I,
)
_PRIORITY = re.compile(r"priorit|\bper\b|alpha|\bprobs?\b|\bp\s*=", re.I)


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _sums(e, x))
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found)
    return Candidate(
        f"{percent(share)} of the training loop sums and searches priorities over the whole buffer, in {function_name(where)}",
        where,
        "learn/sample",
        tuple(found),
        evidence=(f"a batch takes {per_call(e, 'learn/sample') / 1e6:,.2f} ms",),
    )


def _sums(e: Evidence, piece: Slice) -> bool:
    if any(label.endswith(("env_step", "env_reset", "policy", "forward", "backward", "optimizer")) for label in piece.labels):
        return False
    for place in reversed(piece.places):
        if e.is_yours(place):
            text = e.text(place)
            around = " ".join(e.text_around(place))
            return bool(_SUMS.search(text)) and bool(_PRIORITY.search(around))
    return False
