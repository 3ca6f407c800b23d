"""Too much logging, printing or flushing.

What to do: write every hundredth update (`if update % 100 == 0:`), collect numbers and write them together, set `logging` to
INFO or higher, do not flush. Without a flush a crash may lose the last lines.

Every step or update writes something: scalars, histograms, JSON lines, prints, with a flush each. Recognised by: time in
print, logging, TensorBoard, csv, json and file writes, and in your functions that call them."""

from __future__ import annotations

import re

from ....model.phase import COLLECT, EVAL, LOG
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, join, percent, total

TURN = 120
ACTION = "write less often, several numbers at once, and do not flush every time"
TITLE = "{share} of the training loop writes logs, in {function}"
LEAST_SHARE = 0.10
_FILES = re.compile(r"[/\\\\](logging|tensorboard|tensorboardX|wandb|mlflow|loguru|csv)([/\\\\]|\.py)|to_csv|summary")
_TEXT = re.compile(
    r"\bprint\(|\.write\(|\.flush\(|json\.dumps?\(|\.writerow|\.add_(scalar|histogram)|logg?(er|ing)?\.\w+\(|to_csv\(|fsync"
)

_PACKS, _WRITES = re.compile(r"json\.dumps\("), re.compile(r"\.write\(|print\(|logg?(er|ing)?\.\w+\(")


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: _logs(e, x))
    if e.share(found) < LEAST_SHARE:
        return None
    where = e.blame(found, share=0.6)
    whole = [x for x in e.function_slices(where) if x.phase not in (COLLECT, EVAL)] if where.file else []
    if whole and total(found) > 0.6 * total(whole):
        found = join(found, whole)  # what it computes for the log is logging too
    said = f"the log phase of the report is {percent(e.diagnosis.phases.share(LOG))} of the loop"
    return claim(e, found, "log", TITLE, LEAST_SHARE, said, where=where, removes=0.97)


def _logs(e: Evidence, piece: Slice) -> bool:
    if piece.phase == EVAL or any(label.startswith(("checkpoint/", "eval/")) for label in piece.labels):
        return False
    if any(label.startswith("log/") for label in piece.labels) or any(_FILES.search(p.file) for p in piece.places):
        return True
    own = e.innermost(piece.places)
    if own is None or piece.labels or not _TEXT.search(e.text(own)):
        return False
    # what is packed and not written is no log
    return not _PACKS.search(e.text(own)) or any(_WRITES.search(line) for line in e.text_around(own))
