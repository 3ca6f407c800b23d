"""Workers, pools or environments recreated every iteration.

What to do: make them once, before the loop, and send them what changes, such as the weights. For a DataLoader:
`persistent_workers=True`.

    for _ in range(rounds):                              # before
        with Pool(8) as pool: games = pool.map(play, jobs)
    with Pool(8) as pool:                                # after
        for _ in range(rounds): games = pool.map(play, jobs)

The loop waits until they have started. Recognised by: time in starting and ending workers and making environments after
training began, and how often; and the time the loop waits for workers between their start and their first work."""

from __future__ import annotations

from ....model.mechanism import STARTING
from ....model.shard import WAIT
from ..evidence import Evidence, Slice
from ..rule import Candidate, claim, join

TURN = 10
MECHANISM = STARTING  # also where the training waits for it
ACTION = "start workers, pools and environments once, before the loop, and keep them"
LEAST_SHARE, LEAST_STARTS = 0.10, 4
_LABELS = ("worker_start", "env_make")
_FOR_WORKERS = ("(waiting: pipe)", "(waiting: queue)", "(waiting: lock)", "(waiting: select)", "(waiting: process)")
_FILES = ("multiprocessing/", "concurrent/futures/process", "subprocess.py", "popen_fork")


def _waiting_for_start(e: Evidence) -> list[Slice]:
    """Waits of the loop, where workers that began after it took most of the time they lived to get ready."""
    learner = e.session.shards[0]
    late = [s for s in e.session.shards[1:] if s.start_ns > learner.first_work_ns > 0 and s.end_ns > s.start_ns]
    ready = sum((s.first_work_ns or s.end_ns) - s.start_ns for s in late)
    if len(late) < LEAST_STARTS or 2 * ready < sum(s.end_ns - s.start_ns for s in late):
        return []
    return e.where(lambda x: x.kind == WAIT and x.label in _FOR_WORKERS)


def find(e: Evidence) -> Candidate | None:
    starts = sum(o.calls for o in e.diagnosis.operations if o.name.rpartition("/")[2] in _LABELS)
    starts = max(starts, sum(s.start_ns > e.session.shards[0].first_work_ns > 0 for s in e.session.shards[1:]))
    if starts < LEAST_STARTS:
        return None
    found = e.where(lambda x: any(label.rpartition("/")[2] in _LABELS for label in x.labels) or x.label == "(waiting: process)")
    waits = _waiting_for_start(e)
    where = e.blame([x for x in found if x.places] or waits)
    # waiting for work from workers that were just started is part of it
    around = [x for x in e.function_slices(where) if x.kind == WAIT or any(f in p.file for p in x.places for f in _FILES)]
    around += waits
    title = f"{{share}} of the training loop starts and ends workers, {starts:,} times, in {{function}}"
    said = f"{starts:,} starts of workers, pools or environments"
    return claim(e, join(found, around), "collect/worker_start", title, LEAST_SHARE, said, where=where, removes=0.85)
