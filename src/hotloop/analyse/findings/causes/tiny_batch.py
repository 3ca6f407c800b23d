"""Minibatches so small that overhead dominates.

What to do: larger minibatches with fewer updates (`batch_size=128` instead of 4). That changes how the agent learns, and the
learning rate may have to grow: compare the return, not only the speed.

With a handful of samples, most of an update is the fixed cost of launching operations. Recognised by: the batch size of
learning calls (16 or fewer), and the share of the loop spent learning. Predicted for 64 samples, from your own network
measured at other sizes after the run; without that measurement, from the share of its time that is no arithmetic."""

from __future__ import annotations

from ....model.phase import LEARN
from ..axes import with_minibatch
from ..evidence import Evidence
from ..rule import Candidate, claim, total

TURN = 270
ACTION = "use larger minibatches and fewer updates (and check that the return does not suffer)"
CHANGES_LEARNING = True
MOST_BATCH, LEAST_SHARE, LEAST_CALLS, ENOUGH = 16, 0.4, 15, 64


def find(e: Evidence) -> Candidate | None:
    calls = e.facts.get("learn_calls", 0)
    batch = e.facts.get("learn_batch", 0) / calls if calls else 0
    curve = e.curve(LEARN)
    if curve is not None and curve.rows > MOST_BATCH:  # what was counted is another dimension: time, agents
        return None
    if calls < LEAST_CALLS or not 0 < batch <= MOST_BATCH or e.updates < 200:
        return None
    title = f"updates carry {batch:.0f} samples each, and learning is {{share}} of the loop"
    said = f"{e.updates:,} updates with a mean batch of {batch:.1f} samples"
    learning = e.where(lambda x: x.phase == LEARN)
    removes = with_minibatch(e, ENOUGH / batch).saved_ns(learning) / max(1.0, total(learning))
    return claim(e, learning, "learn", title, LEAST_SHARE, said, held=0.8, removes=removes)
