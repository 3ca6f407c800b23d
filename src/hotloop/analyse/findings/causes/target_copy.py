"""Deep copies or full state copies every step.

What to do: copy every few hundred updates instead of at each; or, for a target that follows slowly, move its weights in place:

    with torch.no_grad():   # before: a new dict of all weights, then target.load_state_dict(...)
        for t, p in zip(target.parameters(), model.parameters()): t.lerp_(p, 0.005)

A deepcopy makes every tensor anew, and a state dict is loaded tensor by tensor. How far and how often the target moves is part
of the algorithm: compare the return. Buffers (batch norm) are no parameters: copy them too. Recognised by: time in
copy.deepcopy, state_dict and load_state_dict inside the loop."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 190
ACTION = "copy less often, or update the target's weights in place (lerp_)"
TITLE = "{share} of the training loop makes deep copies or copies of whole networks, in {function}"
LEAST_SHARE = 0.08


def find(e: Evidence) -> Candidate | None:
    said = "{share} of the loop is in deepcopy, state_dict and load_state_dict"
    return claim(e, e.where_label("state_copy", "deepcopy"), "learn/state_copy", TITLE, LEAST_SHARE, said, removes=1.0)
