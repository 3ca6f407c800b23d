"""Evaluation takes a large share of the loop.

What to do: evaluate less often (`if update % 50 == 0:`), over fewer episodes (the mean gets less certain), or in another
process with a copy of the weights.

Training waits meanwhile. Recognised by: the share of the loop in functions that step environments and never learn, if most env
steps come in bursts between few of the updates (half of them in a tenth of the iterations), or the name says what it is for
(eval, test, validate, greedy, …); library functions made for it. A function that steps no environment, or that learns, is none,
whatever it is called. Ignore it if the function that is named does something else."""

from __future__ import annotations

import re
from collections import Counter
from itertools import takewhile

from ....model.phase import EVAL, LEARN
from ....model.shard import Place
from ..evidence import ENV_METHODS, Evidence, Slice
from ..places import work_of
from ..rule import Candidate, claim

TURN = 20
ACTION = "evaluate less often, over fewer episodes, or in another process"
TITLE = "{share} of the training loop is evaluation, in {function}"
LEAST_SHARE, MOST_SHARE = 0.15, 0.97
MOST_STEPS = 0.97  # of the time in env steps: a script that trains makes some outside of its tests
# Half of all steps in a tenth of the iterations: these make nine times as many as the rest. A choice, no measured border: the
# one case has 0.01 of the iterations, programs without evaluation about 0.5. Once or twice is filling a buffer first.
BURSTS, LEAST_BURSTS = 0.1, 3
_NAMES = re.compile(r"eval|(^|_)test(_|$)|validat|benchmark|greedy|demo|play_(episode|game)s?$", re.I)


def find(e: Evidence) -> Candidate | None:
    tests = _functions_that_test(e)
    found = [x for x in e.left if x.phase == EVAL or any(label.startswith("eval/") for label in x.labels) or _tests(x, tests)]
    if e.share(found) > MOST_SHARE:  # all of it: then this is how the script collects
        return None
    names = {p.function.rpartition(".")[2] for x in found for p in x.places if _may_test(p) or (p.file, p.function) in tests}
    where = e.blame(found, names, share=0.9)
    if not e.is_script(where):  # evaluated by a library: what counts is where the script asks for it
        where = e.blame(found, share=0.9)
    said = f"{e.counters.get('eval_env_steps', 0):,} evaluation steps beside {e.env_steps:,} training steps"
    return claim(e, found, "eval/evaluate", TITLE, LEAST_SHARE, said, where=where, removes=0.85)


def _functions_that_test(e: Evidence) -> frozenset[tuple[str, str]]:
    """Those of the script that lead to env steps and to no learning, and whose name says so or whose steps come in bursts. One
    that leads to nearly all of them is how the script collects (evolution, search), whatever it is called."""
    steps: Counter[tuple[str, str]] = Counter()
    learns: set[tuple[str, str]] = set()
    all_steps = 0.0
    bursts = steps_in_bursts(e)
    for piece in e.slices:
        kind = work_of(piece)
        all_steps += piece.ns if piece.places and kind and kind != LEARN else 0.0
        around = list(takewhile(lambda p: p.function.rpartition(".")[2] not in ENV_METHODS, piece.places))
        named = {(p.file, p.function) for p in around if e.is_yours(p) and (bursts or _may_test(p))}
        for function in named if kind else ():
            if kind == LEARN:
                learns.add(function)
            else:
                steps[function] += round(piece.ns)
    return frozenset(function for function, ns in steps.items() if function not in learns and ns < MOST_STEPS * all_steps)


def _may_test(place: Place) -> bool:
    return bool(_NAMES.search(place.function.rpartition(".")[2]))


def steps_in_bursts(e: Evidence) -> bool:
    """Is at least half of all env steps made in few of the iterations, again and again, while most have some?"""
    rows = [(row.counts.get("env_steps", 0), row.merged) for row in e.diagnosis.learner.iterations]
    steps, iterations = sum(n for n, _ in rows), sum(merged for _, merged in rows)
    if 2 * sum(merged for n, merged in rows if n) < iterations:
        return False  # it collects, then learns for a while
    rows.sort(key=lambda row: -row[0] / row[1])
    made = taken = bursts = 0
    for n, merged in rows:
        if 2 * made >= steps or taken + merged > BURSTS * iterations:
            break
        made, taken, bursts = made + n, taken + merged, bursts + 1
    return bursts >= LEAST_BURSTS and 2 * made >= steps


def _tests(piece: Slice, functions: frozenset[tuple[str, str]]) -> bool:
    """Steps and policy calls below a function of the script that tests."""
    works = any(label.endswith(("env_step", "env_reset", "policy")) for label in piece.labels) or not piece.labels
    return works and any((p.file, p.function) in functions for p in piece.places)
