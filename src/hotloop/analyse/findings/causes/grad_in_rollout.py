"""Collection runs with autograd on.

The policy is called to act while autograd records a graph that nobody uses: slower calls, more memory.

Recognised by: outputs of policy calls that require gradients while collecting.

What to do: act under torch.no_grad() or torch.inference_mode().
"""

from __future__ import annotations

from ....model.phase import COLLECT
from ..evidence import Evidence
from ..rule import Candidate, function_name, percent

ACTION = "act under torch.inference_mode() or torch.no_grad()"
LEAST_SHARE = 0.08


def find(e: Evidence) -> Candidate | None:
    calls, with_grad = e.facts.get("collect_calls", 0), e.facts.get("collect_grad", 0)
    policy = [x for x in e.where_label("collect/policy") if x.phase == COLLECT]
    share = e.share(policy)
    if calls < 20 or with_grad < 0.8 * calls or share < LEAST_SHARE:
        return None
    where = e.blame(policy, share=0.6)
    return Candidate(
        f"the policy records gradients while collecting; its calls are {percent(share)} of the loop, in {function_name(where)}",
        where,
        "collect/policy",
        tuple(policy),
        removes=0.35,
        evidence=(f"{with_grad} of {calls} policy calls looked at required gradients",),
    )
