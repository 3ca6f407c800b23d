"""Evaluation takes a large share of the loop.

What to do: evaluate less often (`if update % 50 == 0:`), over fewer episodes (the mean gets less certain), or in another
process with a copy of the weights.

Training waits meanwhile. Recognised by: the share of the loop inside evaluation functions, which are known by their names
(eval, test, validate, greedy, …). Ignore it if the function that is named does something else."""

from __future__ import annotations

import re

from ....model.phase import EVAL
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim

TURN = 20
ACTION = "evaluate less often, over fewer episodes, or in another process"
TITLE = "{share} of the training loop is evaluation, in {function}"
LEAST_SHARE, MOST_SHARE = 0.15, 0.97
_NAMES = re.compile(r"eval|(^|_)test(_|$)|validat|benchmark|greedy|demo|play_(episode|game)s?$", re.I)


def find(e: Evidence) -> Candidate | None:
    found = e.where(lambda x: x.phase == EVAL or any(label.startswith("eval/") for label in x.labels) or _tests(e, x))
    if e.share(found) > MOST_SHARE:  # all of it: then this is how the script collects
        return None
    names = {p.function.rpartition(".")[2] for x in found for p in x.places if _NAMES.search(p.function.rpartition(".")[2])}
    where = e.blame(found, names, share=0.9)
    if not e.is_script(where):  # evaluated by a library: what counts is where the script asks for it
        where = e.blame(found, share=0.9)
    said = f"{e.counters.get('eval_env_steps', 0):,} evaluation steps beside {e.env_steps:,} training steps"
    return claim(e, found, "eval/evaluate", TITLE, LEAST_SHARE, said, where=where, removes=0.85)


def _tests(e: Evidence, piece: Slice) -> bool:
    """Steps and policy calls below a function of the script whose name says that it tests."""
    works = any(label.endswith(("env_step", "env_reset", "policy")) for label in piece.labels) or not piece.labels
    return works and any(e.is_yours(p) and _NAMES.search(p.function.rpartition(".")[2]) for p in piece.places)
