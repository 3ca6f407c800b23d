"""The loop waits, and no other cause has a better word for it.

What to do: find what it waits for (the line is named), and let it happen meanwhile: in another thread or process, ahead of
time, or for several at once. Doing two things at once gains at most the shorter of the two.

    batch = load(next_file)                                        # before: training stands still
    batch = pending.result(); pending = pool.submit(load, later)   # after: loaded while the last one was learnt from

If it waits for a lock, let whoever holds it do slow things (send, write, sleep) after giving it back. When to ignore it: what
it waits for has to come first.

Recognised by: the operating system says that the training's thread is blocked, in 10 % of the loop or more, and no other cause
explains it. Waiting for threads or processes counts only if these are not at work meanwhile, for half of it at least."""

from __future__ import annotations

from ....model.mechanism import WAITING
from ...phases import FOR_OTHERS
from ..evidence import Evidence
from ..rule import Candidate, Expected, function_name, percent, speedup, total

TURN = 328
ACTION = "let it happen meanwhile, ahead of time, or for several at once"
LEAST_SHARE = 0.10
GOES = 0.9  # of it: nobody works meanwhile, so it is loss (0.86 and 0.95 of it went in two cases)


def find(e: Evidence) -> Candidate | None:
    found = [x for x in e.left if x.part(WAITING) > 0.5]
    for_others = [x for x in found if x.label in FOR_OTHERS]
    if e.work_of_others_ns > 0.5 * total(for_others):  # it waits for those who work
        found = [x for x in found if x.label not in FOR_OTHERS]
    share = e.share(found)
    if share < LEAST_SHARE:
        return None
    where = e.blame(found)
    rest = 1 - share
    return Candidate(
        f"for {percent(share)} of the training loop {function_name(where)} waits",
        where, found[0].label, tuple(found), share=share,
        gain=Expected(speedup(GOES * share)),
        evidence=(f"blocked, by the operating system's word; the rest of the loop takes {percent(rest)}",),
    )  # fmt: skip
