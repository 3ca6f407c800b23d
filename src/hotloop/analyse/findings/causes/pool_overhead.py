"""Handing work to threads costs more than the work.

What to do: do it in a plain loop, or hand over larger pieces (several environments, many steps at a time). Threads pay where
the work waits (a server, a disk) or computes outside of Python for a millisecond or more.

    results = list(pool.map(step, envs, actions))        # before: 20 µs a step, and 50 to 100 µs to hand it over
    results = [env.step(a) for env, a in zip(envs, actions)]   # after

Python code of two threads never runs at the same time, and every hand-over wakes a thread and waits for it. When to ignore
it: the steps are about to get heavier.

Recognised by: the time the main thread spends handing over and waiting for its threads, against the time these were at work:
at least a tenth of the loop is neither. The gain is that of a plain loop, which takes as long as the work."""

from __future__ import annotations

from ....model import shard as m
from ....model.mechanism import WAITING
from ..evidence import Evidence, Slice
from ..rule import Candidate, percent, total

TURN = 45
ACTION = "do the work in a plain loop, or hand over larger pieces at a time"
LEAST_LOST = 0.10
_WAITS = ("(waiting: lock)", "(waiting: queue)", "(waiting: select)")
_FILES = ("concurrent/futures/thread.py", "concurrent/futures/_base.py", "/queue.py", "/threading.py",
          "multiprocessing/pool.py", "multiprocessing/dummy")  # fmt: skip


def find(e: Evidence) -> Candidate | None:
    region = [x for x in e.slices if _hands_over(x)]
    lanes = [b for b in e.ledger.balances if b.shard == 0 and b.track != e.main_track]
    if not lanes or e.share(region) < LEAST_LOST:
        return None
    work = waits = 0.0
    for balance in lanes:
        for piece in e.lane(0, balance.track):
            if piece.labels and piece.label != "(waiting: idle worker)" and not _is_idle(piece):
                resting = piece.part(WAITING)
                work += piece.ns * (1 - resting)
                waits += piece.ns * resting
    if e.work_of_processes_ns > work:
        return None  # it is not the threads that do the work
    lost = e.share(region) - work / e.loop_ns
    if lost < LEAST_LOST or waits > work or work <= 0:  # threads that wait for the world are what threads are for
        return None
    return Candidate(
        f"{percent(e.share(region))} of the loop goes into handing work to threads that takes {percent(work / e.loop_ns)}",
        e.blame(region), "collect", tuple(region), share=lost, removes=0.95,
        evidence=(f"{len(lanes)} threads, {work / 1e9:.2f} s of work, {total(region) / 1e9:.2f} s to hand it over and back",),
    )  # fmt: skip


def _hands_over(piece: Slice) -> bool:
    return piece.label in _WAITS or any(piece.places[-1].file.replace("\\", "/").endswith(f) for f in _FILES if piece.places)


def _is_idle(piece: Slice) -> bool:
    """Waiting for work, outside of any of it."""
    return piece.kind == m.WAIT and len([x for x in piece.labels if not x.startswith("(")]) == 0
