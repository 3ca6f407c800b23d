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
from ..rule import Candidate, claim, join

TURN = 10
ACTION = "start workers, pools and environments once, before the loop, and keep them"
LEAST_SHARE, LEAST_STARTS = 0.10, 4
_LABELS = ("worker_start", "env_make")
_FILES = ("multiprocessing/", "concurrent/futures/process", "subprocess.py", "popen_fork")


def find(e: Evidence) -> Candidate | None:
    starts = sum(o.calls for o in e.diagnosis.operations if o.name.rpartition("/")[2] in _LABELS)
    if starts < LEAST_STARTS:
        return None
    found = e.where(lambda x: any(label.rpartition("/")[2] in _LABELS for label in x.labels) or x.label == "(waiting: process)")
    where = e.blame(found)
    # waiting for work from workers that were just started is part of it
    around = [x for x in e.function_slices(where) if x.kind == WAIT or any(f in p.file for p in x.places for f in _FILES)]
    title = f"{{share}} of the training loop starts and ends workers, {starts:,} times, in {{function}}"
    said = f"{starts:,} starts of workers, pools or environments"
    return claim(e, join(found, around), "collect/worker_start", title, LEAST_SHARE, said, where=where, removes=0.85)
