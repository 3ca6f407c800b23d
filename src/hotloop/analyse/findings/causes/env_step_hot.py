"""Slow Python code inside `env.step`.

What to do: vectorise the inner loop with NumPy, keep what does not change between steps, or compile it (Numba, Cython). Then
step several environments at once. For a handful of numbers NumPy is no faster than Python: compile instead.

    free = sum(1 for row in grid for cell in row if cell == 0)   # before
    free = np.count_nonzero(grid == 0)                           # after

The step spends its time in Python code of yours: loops over cells, searches, copies. Every step pays for it, and the learner
waits. Recognised by: the share of the loop that stack samples find in your functions below `step` (waiting, drawing and
wrappers are other causes)."""

from __future__ import annotations

from ....model.shard import USER
from ..evidence import ENV_METHODS, Evidence
from ..rule import Candidate, claim, per_call, percent, total

TURN = 220
ACTION = "vectorise or compile the hot function, or cache what does not change between steps"
TITLE = "{share} of the training loop is interpreted code in {function}, called by env.step"
LEAST_SHARE = 0.22
LEAST_STEP_NS = 20_000  # of one environment: below, it is about as cheap as Python gets, or works on batches


def find(e: Evidence) -> Candidate | None:
    steps = [x for x in e.where_label("env_step") if x.kind == USER and any(e.is_yours(p) for p in x.inside(ENV_METHODS))]
    if total(steps) / max(1, e.env_steps) < LEAST_STEP_NS:
        return None
    where = e.blame(steps, ENV_METHODS)
    step_us = per_call(e, "collect/env_step") / 1000
    said = f"a step takes {step_us:,.0f} µs", f"{percent(e.share(e.function_slices(where)))} of the loop is in this function"
    return claim(e, steps, "collect/env_step", TITLE, LEAST_SHARE, *said, where=where)
