"""The whole buffer is shuffled to draw one batch.

What to do: draw with replacement, or let a `Generator` draw without; it touches only what it draws.

    index = np.random.choice(size, 64, replace=False)   # before: makes a permutation of all `size` numbers
    index = rng.integers(size, size=64)                 # after; or rng.choice(size, 64, replace=False, shuffle=False)

`np.random.choice(..., replace=False)`, `permutation(size)[:64]` and `torch.randperm(size)[:64]` cost as much as the buffer is
long, whatever the batch is. Recognised by: time at lines with one of these."""

from __future__ import annotations

import re

from ..evidence import Evidence, Slice
from ..rule import Candidate, function_name, per_call, percent

TURN = 175
ACTION = "draw the indices with rng.integers(size, size=batch), or rng.choice(..., replace=False) of a Generator"
LEAST_SHARE = 0.08
_SHUFFLES = re.compile(r"np\.random\.choice\(.*replace\s*=\s*False|(permutation|randperm)\(.*\)\s*\[\s*:")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _shuffles(e, x))
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found)
    return Candidate(
        f"{percent(share)} of the training loop shuffles the whole buffer to draw a batch, in {function_name(where)}",
        where,
        "learn/sample",
        tuple(found),
        evidence=(f"drawing a batch takes {per_call(e, 'learn/sample') / 1e6:,.2f} ms",),
    )


def _shuffles(e: Evidence, piece: Slice) -> bool:
    own = e.innermost(piece.places)
    return own is not None and bool(_SHUFFLES.search(e.text(own)))
