"""The loop sleeps, or asks again and again, until something is there.

What to do: wait for the thing itself: `queue.get()` instead of looking whether it is empty, `event.wait()`, `select`,
`future.result()`. They return at the moment it is there.

    while queue.empty(): time.sleep(0.01)     # before: up to 10 ms too late, every time
    item = queue.get()                        # after

When to ignore it: the pause is wanted (a rate limit, a real robot).

Recognised by: time in `time.sleep` of the training's own thread, outside of environments, for 10 % of the loop or more. How
much of that is needed is not known: half to all of it goes."""

from __future__ import annotations

from ..evidence import Evidence
from ..rule import Candidate, claim

TURN = 65
ACTION = "wait for the thing itself (queue.get(), event.wait()) instead of sleeping and looking again"
TITLE = "for {share} of the training loop {function} sleeps until something is there"
LEAST_SHARE = 0.10
_ENV = ("env_step", "env_reset")


def find(e: Evidence) -> Candidate | None:
    sleeps = [x for x in e.left if x.label == "(waiting: sleep)" and not any(y.rpartition("/")[2] in _ENV for y in x.labels)]
    return claim(e, sleeps, "(waiting: sleep)", TITLE, LEAST_SHARE, held=0.6, removes=0.8)
