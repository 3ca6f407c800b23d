"""Prioritised sampling goes through the whole buffer for every batch.

What to do: keep the sums in a tree (sum tree, segment tree; TorchRL and tianshou have one): a draw and an update cost log N.

    index = rng.choice(size, 64, p=priorities / priorities.sum())   # before: reads all priorities
    index = tree.find(rng.random(64) * tree.total)                  # after: walks down the tree, with all 64 at once

Priorities are summed or turned into probabilities over the whole buffer, so sampling gets slower as it fills. Recognised by:
time at lines that sum, normalise or search priorities, or draw by probabilities of a whole buffer, which takes native time.
For a small buffer a tree may be no faster."""

from __future__ import annotations

import re

from ....model.mechanism import COMPUTING, MOVING
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, per_call

TURN = 170
REWRITES = True
ACTION = "keep priorities in a sum tree: drawing and updating then cost log N instead of N"
TITLE = "{share} of the training loop sums and searches priorities over the whole buffer, in {function}"
LEAST_SHARE = 0.12
_SUMS = re.compile(
    r"cumsum|searchsorted|accumulate|random\.choices|choice\([^)]*\bp\s*=|multinomial|prior\w*[^=]*(\.sum\(|/|\*\*)|sum\([^)]*prior"
    r"|probs?\s*=|weights?\s*/",
    re.I,
)
_PRIORITY = re.compile(r"priorit|\bper\b|alpha|\bprobs?\b|\bp\s*=", re.I)


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _sums(e, x))
    said = f"drawing a batch takes {per_call(e, 'learn/sample') / 1e6:,.2f} ms"
    return claim(e, found, "learn/sample", TITLE, LEAST_SHARE, said)


def _sums(e: Evidence, piece: Slice) -> bool:
    if any(label.endswith(("env_step", "env_reset", "policy", "forward", "backward", "optimizer")) for label in piece.labels):
        return False
    for place in reversed(piece.places):
        if e.is_yours(place):
            text = e.text(place)
            around = " ".join((place.function, *e.text_around(place)))
            if not _SUMS.search(text) or not _PRIORITY.search(around):
                return False
            # drawing actions from probabilities is none of it: whole buffers take native time, or are called so
            whole = piece.part(COMPUTING) + piece.part(MOVING) > 0.5 and "multinomial" not in text
            return "priorit" in around.casefold() or whole
    return False
