"""The same batch goes through the same, unchanged network again.

What to do: keep the first result and use it twice.

    loss = policy_loss(net(obs)[0]) + value_loss(net(obs)[1])   # before
    logits, value = net(obs); loss = policy_loss(logits) + value_loss(value)   # after

When to ignore it: the network draws random numbers (dropout, noise), and the second draw is meant.

Recognised by: neighbouring network calls while learning, looked at three in a row: the same network, the same weights, the
very same tensors, in a fifth of the pairs or more. Predicted by the share of such calls."""

from __future__ import annotations

from ..evidence import Evidence
from ..places import blame_caller
from ..rule import Candidate, claim, percent

TURN = 194
ACTION = "keep the first result and use it again"
LEAST_REPEATED, LEAST_LOOKED, LEAST_SHARE = 0.2, 12, 0.03


def find(e: Evidence) -> Candidate | None:
    looked, repeated = e.facts.get("repeats_looked", 0), e.facts.get("repeats", 0)
    # of a burst of three, the first has no neighbour that was seen
    share = repeated / (looked * 2 / 3) if looked else 0.0
    if looked < LEAST_LOOKED or share < LEAST_REPEATED:
        return None
    found = [x for x in e.left if "learn/forward" in x.labels]
    back = [x for x in e.left if "learn/backward" in x.labels]
    title = (
        f"{percent(min(1.0, share))} of the network calls while learning repeat the one before: calls are {{share}} of the loop"
    )
    said = f"{repeated:,} of {looked:,} calls that were looked at had the same network, weights and tensors as the one before"
    return claim(
        e, [*found, *back], "learn/forward", title, LEAST_SHARE, said, where=blame_caller(e, found), removes=min(0.9, share)
    )
