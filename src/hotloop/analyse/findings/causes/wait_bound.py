"""The loop waits, and no other cause has a better word for it.

What to do: find what it waits for (the line is named), and let it happen meanwhile: in another thread or process, ahead of
time, or for several at once. Doing two things at once gains at most the shorter of the two.

    batch = load(next_file)                                        # before: training stands still
    batch = pending.result(); pending = pool.submit(load, later)   # after: loaded while the last one was learnt from

If it waits for a lock, let whoever holds it do slow things (send, write, sleep) after giving it back. When to ignore it: what
it waits for has to come first.

Recognised by: the operating system says that the training's thread is blocked, in 10 % of the loop or more, and no other cause
explains it. Where a call of Python's own library mostly waits (a pipe, a queue, a proxy), its packing and sending count with
it. Waiting for threads or processes counts only if these are idle themselves for at least half of that time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....model.code import is_standard
from ....model.mechanism import WAITING
from ...phases import FOR_OTHERS
from ..evidence import Evidence, Slice
from ..rule import Candidate, Expected, function_name, percent, speedup, total

TURN = 316  # before the places of work: what a call does besides waiting goes with it
ACTION = "let it happen meanwhile, ahead of time, or for several at once"
LEAST_SHARE = 0.10
GOES = 0.9  # of it: nobody works meanwhile, so it is loss (0.86 and 0.95 of it went in two cases)


def find(e: Evidence) -> Candidate | None:
    found = [x for x in e.left if x.part(WAITING) > 0.5]
    for_others = [x for x in found if x.label in FOR_OTHERS]
    if e.work_of_others_ns > 0.5 * total(for_others):  # it waits for those who work
        found = [x for x in found if x.label not in FOR_OTHERS]
    if e.share(found) < LEAST_SHARE:
        return None
    waits, found = percent(e.share(found)), [*found, *_work_for(e, found)]
    share = e.share(found)
    where = e.blame(found)
    return Candidate(
        f"for {waits} of the training loop {function_name(where)} waits",
        where, found[0].label, tuple(found), share=share,
        gain=Expected(speedup(GOES * share)),
        evidence=(f"blocked, by the operating system's word; with what these calls do besides, {percent(share)} of the loop",),
    )  # fmt: skip


def _work_for(e: Evidence, waits: Sequence[Slice]) -> list[Slice]:
    """What calls of Python's own library do besides when they mostly wait: packing, sending, unpacking go with the wait."""
    whole: Counter[object] = Counter()
    for piece in e.left:
        whole[_call(e, piece)] += round(piece.ns)
    waited: Counter[object] = Counter()
    for piece in waits:
        waited[_call(e, piece)] += round(piece.ns)
    mostly = {call for call, ns in waited.items() if call and 2 * ns > whole[call]}
    known = {x.index for x in waits}
    return [x for x in e.left if x.index not in known and _call(e, x) in mostly]


def _call(e: Evidence, piece: Slice) -> object:
    """The line of the user's and the standard function it calls; None where it calls another."""
    places = [p for p in piece.places if not p.file.startswith("<")]  # methods of proxies are made while the program runs
    at = max((i for i, p in enumerate(places) if e.is_yours(p)), default=-1)
    if at < 0 or at + 1 == len(places) or not is_standard(places[at + 1].file):
        return None
    own, called = places[at : at + 2]
    return own.file, own.function, own.line, called.file, called.function
