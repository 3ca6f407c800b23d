"""Deep copies or full state copies every step.

The target network is made anew (deepcopy) or loaded from a full state dict at every update.

Recognised by: time in copy.deepcopy, state_dict and load_state_dict inside the loop.

What to do: copy every few hundred updates, or move the weights in place (lerp_ under no_grad).
"""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, function_name, percent

ACTION = "copy less often, or update the target's weights in place (lerp_)"
LEAST_SHARE = 0.08


def find(e: Evidence) -> Candidate | None:
    found = e.where_label("state_copy", "deepcopy")
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found)
    return Candidate(
        f"{percent(share)} of the training loop copies whole networks, in {function_name(where)}",
        where,
        "learn/state_copy",
        tuple(found),
        evidence=(f"{percent(share)} in deepcopy, state_dict and load_state_dict",),
    )
