"""The loop sleeps, or asks again and again, until something is there.

What to do: wait for the thing itself: `queue.get()` instead of looking whether it is empty, `event.wait()`, `select`,
`future.result()`. They return at the moment it is there.

    while queue.empty(): time.sleep(0.01)     # before: up to 10 ms too late, every time
    item = queue.get()                        # after

When to ignore it: the pause is wanted (a rate limit, a real robot).

Recognised by: time in `time.sleep`, and in waits that ended by their time limit (`queue.get(timeout=…)`, `event.wait(…)`,
`select`) without what was waited for: in the training's own thread outside of environments, or in the thread or process that
it waits for, for 10 % of the loop or more. All of it is expected to go."""

from __future__ import annotations

from ....model.shard import WAIT
from ..evidence import Evidence, Slice
from ..others import SLEEP, find_culprit
from ..rule import Candidate, claim, function_name, percent, total

TURN = 42
ACTION = "wait for the thing itself (queue.get(), event.wait()) instead of sleeping and looking again"
TITLE = "for {share} of the training loop {function} sleeps until something is there"
LEAST_SHARE = 0.10
GOES = 1.0  # of it, and some of what it dragged along: 0.99 to 1.17 went in five cases
_ENV = ("env_step", "env_reset")
LEAST_LIMITS = 0.5  # of the time another thread is waited for


def find(e: Evidence) -> list[Candidate]:
    sleeps = [x for x in e.left if _passes_time(e, x) and not any(y.rpartition("/")[2] in _ENV for y in x.labels)]
    found = [claim(e, sleeps, sleeps[0].label, TITLE, LEAST_SHARE, held=0.6, removes=GOES) if sleeps else None, _in_others(e)]
    return [x for x in found if x is not None]


def _passes_time(e: Evidence, piece: Slice) -> bool:
    """Asleep, or in a wait that most often ends by its time limit."""
    return piece.kind == WAIT and (piece.label == SLEEP or e.expired_part(0, e.main_track, piece.branch) > LEAST_LIMITS)


def _in_others(e: Evidence) -> Candidate | None:
    culprit = find_culprit(e)
    if culprit is None or culprit.limits < LEAST_LIMITS or not culprit.limit_place.file:
        return None
    if 2 * total(x for x in culprit.waits if _takes_lock(x)) > total(culprit.waits):
        return None  # who has the lock lets time pass: giving the lock back first is another remedy (wait-bound)
    where, share = culprit.limit_place, e.share(culprit.waits) * culprit.limits
    if share < LEAST_SHARE:
        return None
    return Candidate(
        f"for {percent(share)} of the training loop {function_name(where)} lets time pass in {culprit.name}, and the training "
        "waits for it",
        where, culprit.waits[0].label, culprit.waits, share=share, removes=GOES,
        evidence=(f"{percent(culprit.limits)} of what that thread takes is sleeping, or waiting until a time limit passes",),
    )  # fmt: skip


def _takes_lock(piece: Slice) -> bool:
    """A lock itself, not an event or a condition, which wait in Python code of `threading`."""
    return piece.label == "(waiting: lock)" and bool(piece.places) and not piece.places[-1].file.endswith("threading.py")
