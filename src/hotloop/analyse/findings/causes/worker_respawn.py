"""Workers, pools or environments recreated every iteration.

What to do: make them once, before the loop, and send them what changes, such as the weights. For a DataLoader:
`persistent_workers=True`.

    for _ in range(rounds):                              # before
        with Pool(8) as pool: games = pool.map(play, jobs)
    with Pool(8) as pool:                                # after
        for _ in range(rounds): games = pool.map(play, jobs)

The loop waits until they have started. Recognised by: time in starting and ending workers and making environments after
training began, and how often."""

from __future__ import annotations

from ....model.shard import WAIT
from ..evidence import Evidence
from ..rule import Candidate, function_name, join, percent

ACTION = "start workers, pools and environments once, before the loop, and keep them"
LEAST_SHARE, LEAST_STARTS = 0.10, 4
_LABELS = ("worker_start", "env_make")
_FILES = ("multiprocessing/", "concurrent/futures/process", "subprocess.py", "popen_fork")


def find(e: Evidence) -> Candidate | None:
    starts = sum(o.calls for o in e.diagnosis.operations if o.name.rpartition("/")[2] in _LABELS)
    found = e.where(lambda x: any(label.rpartition("/")[2] in _LABELS for label in x.labels) or x.label == "(waiting: process)")
    where = e.blame(found)
    # waiting for work from workers that were just started is part of it
    around = [x for x in e.function_slices(where) if x.kind == WAIT or any(f in p.file for p in x.places for f in _FILES)]
    found = join(found, around)
    share = e.share(found)
    if share < LEAST_SHARE or starts < LEAST_STARTS:
        return None
    return Candidate(
        f"{percent(share)} of the training loop starts and ends workers, {starts:,} times, in {function_name(where)}",
        where,
        "collect/worker_start",
        tuple(found),
        removes=0.85,
        evidence=(f"{starts:,} starts of workers, pools or environments",),
    )
