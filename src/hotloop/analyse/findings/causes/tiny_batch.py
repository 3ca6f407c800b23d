"""Minibatches so small that overhead dominates.

What to do: larger minibatches with fewer updates (`batch_size=128` instead of 4). That changes how the agent learns, and the
learning rate may have to grow: compare the return, not only the speed.

With a handful of samples, most of an update is the fixed cost of launching operations. Recognised by: the batch size of
learning calls, and the share of the loop spent learning."""

from __future__ import annotations

from ....model.phase import LEARN
from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 270
ACTION = "use larger minibatches and fewer updates (and check that the return does not suffer)"
MOST_BATCH, LEAST_SHARE, LEAST_CALLS, ENOUGH = 16, 0.4, 15, 64


def find(e: Evidence) -> Candidate | None:
    calls = e.facts.get("learn_calls", 0)
    batch = e.facts.get("learn_batch", 0) / calls if calls else 0
    if calls < LEAST_CALLS or not 0 < batch <= MOST_BATCH or e.updates < 200:
        return None
    title = f"updates carry {batch:.0f} samples each, and learning is {{share}} of the loop"
    said = f"{e.updates:,} updates with a mean batch of {batch:.1f} samples"
    removes = min(0.85, 1 - batch / ENOUGH)
    return claim(e, e.where(lambda x: x.phase == LEARN), "learn", title, LEAST_SHARE, said, held=0.8, removes=removes)
