"""float64 where float32 would do.

What to do: make observations float32 (`obs.astype(np.float32)`) and the model too: `model.float()` instead of
`model.double()`, and no `torch.set_default_dtype(torch.float64)`. Keep float64 if your method needs the precision.

Double precision, usually NumPy's default passed on, means twice the memory traffic and half the speed, on many GPUs far less.
Recognised by: the number type of the tensors that models are called with."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 250
ACTION = "use float32: .astype(np.float32) for observations, model.float()"
TITLE = "the networks compute in float64; tensor work is {share} of the loop"


def find(e: Evidence) -> Candidate | None:
    calls, double = e.facts.get("model_calls", 0), e.facts.get("model_double", 0)
    if calls < 10 or double < 0.7 * calls:
        return None
    work = e.where_label("forward", "policy", "backward", "optimizer", "loss", "clip_grad")
    said = f"{double} of the {calls} model calls that were checked had float64 input"
    return claim(e, work, "learn/forward", TITLE, 0.15, said, held=0.6, removes=0.42)
