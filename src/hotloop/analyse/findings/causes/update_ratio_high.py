"""Several gradient updates for every env step.

What to do: if the algorithm does not need that ratio, update less often (stable-baselines3: `gradient_steps`) or with larger
batches. Compare the return, not only the speed: methods such as REDQ are made for many updates a step.

The environment idles while the learner makes them. Recognised by: updates per env step (1.5 or more) and the share of learning
(half of the loop); or many updates in a row (16) after each step of many environments, when learning is nine tenths."""

from __future__ import annotations

from ....model.phase import LEARN
from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 280
ACTION = "update less often per env step (and check that the return does not suffer)"
CHANGES_LEARNING = True
LEAST_RATIO, LEAST_SHARE = 1.5, 0.5  # libraries' defaults make one update per env step at most
# Many environments at once: as many updates as environments after each step is usual, and leaves the environments idle. From
# this many in a row on, and with the environments idle for nine tenths of the time, it is named; predicted for FEW of them.
LEAST_IN_A_ROW, LEAST_SHARE_IN_A_ROW, FEW = 16, 0.9, 4


def find(e: Evidence) -> Candidate | None:
    ratio = e.updates / e.env_steps if e.env_steps else 0.0
    learning = e.where(lambda x: x.phase == LEARN)
    if ratio >= LEAST_RATIO:
        title = f"{ratio:.1f} updates for every env step: {{share}} of the loop is learning"
        said = f"{e.updates:,} updates, {e.env_steps:,} env steps"
        return claim(e, learning, "learn", title, LEAST_SHARE, said, held=0.8, removes=1 - 1 / ratio)
    in_a_row = e.updates / e.step_calls if e.step_calls else 0.0
    if in_a_row < LEAST_IN_A_ROW:
        return None
    title = f"{in_a_row:.0f} updates after every step of the environments: {{share}} of the loop is learning"
    said = f"{e.updates:,} updates, {e.step_calls:,} steps of {e.env_steps / e.step_calls:.0f} environments together"
    return claim(e, learning, "learn", title, LEAST_SHARE_IN_A_ROW, said, held=0.8, removes=1 - FEW / in_a_row)
