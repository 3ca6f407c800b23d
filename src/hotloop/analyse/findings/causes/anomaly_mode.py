"""Autograd anomaly detection left on.

What to do: remove `set_detect_anomaly(True)`, or the option of your library that calls it. To hunt a NaN, wrap the forward and
backward pass of a few updates in `torch.autograd.detect_anomaly()`.

It records a traceback with every operation and checks every gradient for NaN, in every update. Recognised by: torch said that
it was on, in half or more of the updates that were checked (every 16th)."""

from __future__ import annotations

import re

from ....model.phase import LEARN
from ....model.shard import Place
from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 230
ACTION = "remove set_detect_anomaly(True); use it only to hunt a NaN"
TITLE = "autograd's anomaly detection is on; learning is {share} of the loop"
_CALL = re.compile(r"detect_anomaly\(")


def find(e: Evidence) -> Candidate | None:
    readings, on = e.facts.get("update_looks", 0), e.facts.get("anomaly_updates", 0)
    if not readings or on < 0.5 * readings:
        return None
    work = e.where(lambda x: x.phase == LEARN)
    where = _call(e) or e.blame(e.where_label("backward"))
    said = f"it was on at {on} of the {readings} updates that were checked"
    return claim(e, work, "learn/backward", TITLE, 0.0, said, where=where, removes=0.5)


def _call(e: Evidence) -> Place | None:
    for file, source in e.session.sources.items():
        for line, text in source.text.items():
            if _CALL.search(text):
                inside = [f for f in source.functions if f[1] <= line <= f[2]]
                return Place(file, inside[-1][0] if inside else "<module>", line)
    return None
