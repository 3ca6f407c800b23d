"""Advantages or returns are computed number by number.

What to do: loop over time only, with all environments in one NumPy array. For one environment `scipy.signal.lfilter` needs no
loop, but must be called for each episode, as it does not stop where one ends.

    delta = rewards + gamma * next_values * (1 - dones) - values   # arrays of steps × environments; last = 0
    for t in reversed(range(steps)):                               # before: with a loop over environments inside
        last = advantages[t] = delta[t] + gamma * lam * (1 - dones[t]) * last

In a Python loop each number costs as much as a whole row of an array. Recognised by: time in functions named so (gae,
advantage, returns, …), and in backward loops over the rollout."""

from __future__ import annotations

import re

from ....model.mechanism import COMPUTING
from ..evidence import Evidence, Slice
from ..places import above_network
from ..rule import Candidate, claim

TURN = 200
REWRITES = True
ACTION = "loop over time only, with all environments in one array; for one environment scipy.signal.lfilter per episode"
TITLE = "{share} of the training loop computes advantages one number at a time, in {function}"
LEAST_SHARE = 0.10
_NAMES = re.compile(r"gae|advantage|returns?$|discount|reward_to_go|rewards_to_go|td_lambda|lambda_return|bootstrap", re.I)
_LOOP = re.compile(r"reversed\(|range\([^)]*-\s*1\s*,\s*-\s*1|\[::-1\]")


def find(e: Evidence) -> Candidate | None:
    said = "{share} of the loop is in functions or backward loops that do this"
    return claim(e, e.where(lambda x: _computes(e, x)), "learn/advantage", TITLE, LEAST_SHARE, said, held=0.6)


def _computes(e: Evidence, piece: Slice) -> bool:
    own = [p for p in piece.places if e.is_yours(p)]
    if piece.part(COMPUTING) > 0.5 or len(above_network(piece)) < len(piece.places):  # no single numbers: a model is asked
        return False
    if any(label.endswith("/advantage") for label in piece.labels):
        return bool(own)
    if piece.labels and not piece.labels[-1].endswith(("make_tensor", "train", "rollout")):
        return False
    return any(
        _NAMES.search(p.function.rpartition(".")[2]) or any(_LOOP.search(t) for t in e.loops_around(p)) for p in own[-2:]
    )
