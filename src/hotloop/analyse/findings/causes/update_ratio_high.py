"""Several gradient updates for every env step.

What to do: if the algorithm does not need that ratio, update less often (stable-baselines3: `gradient_steps`) or with larger
batches. Compare the return, not only the speed: methods such as REDQ are made for many updates a step.

The environment idles while the learner makes them. Recognised by: updates per env step and the share of learning."""

from __future__ import annotations

from ....model.phase import LEARN
from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 280
ACTION = "update less often per env step (and check that the return does not suffer)"
LEAST_RATIO, LEAST_SHARE = 1.5, 0.5


def find(e: Evidence) -> Candidate | None:
    ratio = e.updates / e.env_steps if e.env_steps else 0.0
    if ratio < LEAST_RATIO:
        return None
    title = f"{ratio:.1f} updates for every env step: {{share}} of the loop is learning"
    said = f"{e.updates:,} updates, {e.env_steps:,} env steps"
    return claim(e, e.where(lambda x: x.phase == LEARN), "learn", title, LEAST_SHARE, said, held=0.8, removes=1 - 1 / ratio)
