"""Saving too often.

Models, optimizers or buffers are written to disk every few updates.

Recognised by: the share of the loop inside save calls.

What to do: save less often, save the model alone, or save in another thread.
"""

from __future__ import annotations

import re

from ....model.phase import CHECKPOINT
from ..evidence import Evidence, Slice
from ..rule import Candidate, function_name, percent

ACTION = "save less often, or only what is needed to go on"
LEAST_SHARE = 0.10
_TEXT = re.compile(r"\b(torch|np|numpy|joblib)\.(save|savez\w*|dump)\(|pickle\.dumps?\(|\.save\(|shutil\.copy")
_NAMES = re.compile(r"save|checkpoint|snapshot", re.I)


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _saves(e, x))
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found, share=0.6)
    return Candidate(
        f"{percent(share)} of the training loop saves checkpoints, in {function_name(where)}",
        where,
        "checkpoint/save",
        tuple(found),
        evidence=(f"{percent(e.diagnosis.phases.share(CHECKPOINT))} measured directly in save calls",),
    )


def _saves(e: Evidence, piece: Slice) -> bool:
    if any(label.startswith("checkpoint/") for label in piece.labels):
        return True
    if any(label.endswith(("env_step", "env_reset", "/evaluate")) for label in piece.labels):
        return False
    own = [p for p in piece.places if e.is_yours(p)]
    return bool(own) and (bool(_TEXT.search(e.text(own[-1]))) or bool(_NAMES.search(own[-1].function.rpartition(".")[2])))
