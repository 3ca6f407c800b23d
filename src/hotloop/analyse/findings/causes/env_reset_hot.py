"""Resetting the environment is expensive.

What to do: do the slow part once, in `__init__`, and only restore it in `reset` (`self.grid[:] = self.first_grid`), reset only
what changed, or prepare starts in advance: many, as the agent will meet no others.

`reset` builds worlds, loads files or searches for a start that works, and episodes are short enough for it to matter.
Recognised by: the share of the loop inside `reset`, measured directly."""

from __future__ import annotations

from ..evidence import ENV_METHODS, Evidence
from ..rule import Candidate, claim, join, per_call

TURN = 110
ACTION = "build the world once and restore it, or prepare starting states in advance"
TITLE = "{share} of the training loop is spent resetting environments, in {function}"
LEAST_SHARE = 0.12


def find(e: Evidence) -> Candidate | None:
    inside = (x for x in e.where_label("env_step") if any(label.endswith(".reset") for label in x.labels))
    resets = join(e.where_label("env_reset"), inside)
    steps = e.env_steps / max(1, e.counters.get("resets", 1))
    said = f"a reset takes {per_call(e, 'env_reset') / 1e6:,.2f} ms", f"one every {steps:,.0f} env steps"
    return claim(e, resets, "collect/env_reset", TITLE, LEAST_SHARE, *said, inside=ENV_METHODS)
