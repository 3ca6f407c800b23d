"""Evaluation takes a large share of the loop.

What to do: evaluate less often (`if update % 50 == 0:`), over fewer episodes (the mean gets less certain), or in another
process with a copy of the weights.

Training waits meanwhile. Recognised by: the share of the loop in functions that step environments and never learn, and whose
name says what for (eval, test, validate, greedy, …); library functions made for it. A function that steps no environment, or
that learns, is none, whatever it is called. Ignore it if the function that is named does something else."""

from __future__ import annotations

import re
from collections import Counter

from ....model.phase import EVAL, LEARN
from ..evidence import Evidence, Slice
from ..places import work_of
from ..rule import Candidate, claim

TURN = 20
ACTION = "evaluate less often, over fewer episodes, or in another process"
TITLE = "{share} of the training loop is evaluation, in {function}"
LEAST_SHARE, MOST_SHARE = 0.15, 0.97
MOST_STEPS = 0.97  # of the time in env steps: a script that trains makes some outside of its tests
_NAMES = re.compile(r"eval|(^|_)test(_|$)|validat|benchmark|greedy|demo|play_(episode|game)s?$", re.I)


def find(e: Evidence) -> Candidate | None:
    tests = _functions_that_test(e)
    found = e.where(lambda x: x.phase == EVAL or any(label.startswith("eval/") for label in x.labels) or _tests(x, tests))
    if e.share(found) > MOST_SHARE:  # all of it: then this is how the script collects
        return None
    names = {p.function.rpartition(".")[2] for x in found for p in x.places if _NAMES.search(p.function.rpartition(".")[2])}
    where = e.blame(found, names, share=0.9)
    if not e.is_script(where):  # evaluated by a library: what counts is where the script asks for it
        where = e.blame(found, share=0.9)
    said = f"{e.counters.get('eval_env_steps', 0):,} evaluation steps beside {e.env_steps:,} training steps"
    return claim(e, found, "eval/evaluate", TITLE, LEAST_SHARE, said, where=where, removes=0.85)


def _functions_that_test(e: Evidence) -> frozenset[tuple[str, str]]:
    """Those of the script whose name says so, that lead to env steps, and to no learning. One that leads to nearly all of them
    is how the script collects (evolution, search), whatever it is called."""
    steps: Counter[tuple[str, str]] = Counter()
    learns: set[tuple[str, str]] = set()
    all_steps = 0.0
    for piece in e.slices:
        kind = work_of(piece)
        all_steps += piece.ns if piece.places and kind and kind != LEARN else 0.0
        named = {(p.file, p.function) for p in piece.places if e.is_yours(p) and _NAMES.search(p.function.rpartition(".")[2])}
        for function in named if kind else ():
            if kind == LEARN:
                learns.add(function)
            else:
                steps[function] += round(piece.ns)
    return frozenset(function for function, ns in steps.items() if function not in learns and ns < MOST_STEPS * all_steps)


def _tests(piece: Slice, functions: frozenset[tuple[str, str]]) -> bool:
    """Steps and policy calls below a function of the script that tests."""
    works = any(label.endswith(("env_step", "env_reset", "policy")) for label in piece.labels) or not piece.labels
    return works and any((p.file, p.function) in functions for p in piece.places)
