"""Checkpoints are saved too often.

What to do: save less often (`if update % 1000 == 0:`), and leave out what you do not need, such as the replay buffer. To save
in another thread, give it a copy (`copy.deepcopy(model.state_dict())`), as training goes on changing the weights.

Training waits while models, optimizers or buffers are written. Recognised by: the share of the loop inside save calls (torch,
NumPy, pickle, joblib, your RL library's), measured directly, and at lines that call one. Ignore it if a crash would cost you
more than the saving does."""

from __future__ import annotations

import re

from ....model.phase import CHECKPOINT
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, percent

TURN = 130
REWRITES = True
ACTION = "save less often, and only what you need to resume"
TITLE = "{share} of the training loop saves checkpoints, in {function}"
LEAST_SHARE = 0.10
_TEXT = re.compile(r"\b(torch|np|numpy|joblib)\.(save|savez\w*|dump)\(|pickle\.dumps?\(|\.save\(|shutil\.copy")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _saves(e, x))
    said = f"the checkpoint phase of the report is {percent(e.diagnosis.phases.share(CHECKPOINT))} of the loop"
    return claim(e, found, "checkpoint/save", TITLE, LEAST_SHARE, said, held=0.6)


def _saves(e: Evidence, piece: Slice) -> bool:
    if any(label.startswith("checkpoint/") for label in piece.labels):
        return True
    if any(label.endswith(("env_step", "env_reset", "/evaluate")) for label in piece.labels):
        return False
    own = e.innermost(piece.places)
    return own is not None and bool(_TEXT.search(e.text(own)))
