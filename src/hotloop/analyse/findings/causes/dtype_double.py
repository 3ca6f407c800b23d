"""float64 where float32 would do.

Networks compute in double precision, usually because NumPy's default was passed on: twice the memory traffic, half the speed.

Recognised by: the number type of the tensors models are called with.

What to do: observations as float32, `model.float()`, no set_default_dtype(float64).
"""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, percent

ACTION = "use float32: .astype(np.float32) for observations, model.float()"


def find(e: Evidence) -> Candidate | None:
    calls, double = e.facts.get("model_calls", 0), e.facts.get("model_double", 0)
    work = e.where_label("forward", "policy", "backward", "optimizer", "loss", "clip_grad")
    share = e.share(work)
    if calls < 10 or double < 0.7 * calls or share < 0.15:
        return None
    where = e.blame(work, share=0.6)
    return Candidate(
        f"the networks compute in float64; tensor work is {percent(share)} of the loop",
        where,
        "learn/forward",
        tuple(work),
        removes=0.42,
        evidence=(f"{double} of {calls} model calls looked at were in float64",),
    )
