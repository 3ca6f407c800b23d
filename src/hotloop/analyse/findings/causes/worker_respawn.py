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

from dataclasses import replace

from ....model.mechanism import STARTING
from ....model.shard import WAIT, Shard
from ..evidence import Evidence, Slice
from ..places import find_drivers
from ..rule import Candidate, claim, join, total

TURN = 10
MECHANISM = STARTING  # also where the training waits for it
ACTION = "start workers, pools and environments once, before the loop, and keep them"
LEAST_SHARE, LEAST_STARTS = 0.10, 4
GOES = 0.97  # of the time around starts: 0.8 to 1.3 of it went in six cases of seven
LEAST_READY = 1 / 3  # of the time late workers lived, to get ready
_LABELS = ("worker_start", "env_make")
_FOR_WORKERS = ("(waiting: pipe)", "(waiting: queue)", "(waiting: lock)", "(waiting: select)", "(waiting: process)")
_REGISTRY = ("gym/envs/registration.py", "gymnasium/envs/registration.py")
_FILES = ("multiprocessing/", "concurrent/futures/process", "subprocess.py", "popen_fork")


TICK_NS = 10_000_000  # of the kernel's time at which a process began
MOST_BOOT_NS = 60_000_000_000


def _late_workers(e: Evidence) -> list[Shard]:
    """Those that began after the first work of the job."""
    begin = min((s.first_work_ns for s in e.session.shards if s.first_work_ns > s.start_ns), default=0)
    return [s for s in e.session.shards[1:] if s.end_ns > s.start_ns > begin > 0]


def _began_ns(shard: Shard) -> int:
    """When its process began, before there was anything of ours in it."""
    began = shard.process_start * TICK_NS
    return began if 0 < shard.start_ns - began < MOST_BOOT_NS else shard.start_ns


def _waiting_for_start(e: Evidence, late: list[Shard]) -> tuple[list[Slice], float]:
    """Waits of the loop, where workers that began after it took much of the time they lived to get ready, and how much."""
    ready = sum((s.first_work_ns if s.first_work_ns > s.start_ns else s.end_ns) - _began_ns(s) for s in late)
    lived = sum(s.end_ns - _began_ns(s) for s in late)
    if len(late) < LEAST_STARTS or ready < LEAST_READY * lived:
        return [], 0.0
    return e.where(lambda x: x.kind == WAIT and x.label in _FOR_WORKERS), ready / lived


def _asked_for(e: Evidence, piece: Slice) -> Slice:
    """Without what the library calls to make an environment: the class it makes is not to blame."""
    made = next((i for i, p in enumerate(piece.places) if p.file.replace("\\", "/").endswith(_REGISTRY)), None)
    return replace(piece, places=piece.places[:made])


def _is_starting(piece: Slice) -> bool:
    return any(f in p.file for p in piece.places for f in _FILES)


def find(e: Evidence) -> Candidate | None:
    late = _late_workers(e)
    starts = sum(o.calls for o in e.diagnosis.operations if o.name.rpartition("/")[2] in _LABELS)
    starts = max(starts, len(late))
    if starts < LEAST_STARTS:
        return None
    found = e.where(lambda x: any(label.rpartition("/")[2] in _LABELS for label in x.labels) or x.label == "(waiting: process)")
    waits, getting_ready = _waiting_for_start(e, late)
    where = e.blame([_asked_for(e, x) for x in found if x.places] or waits)
    # waiting for work from workers that were just started is part of it, and so is what else a function does that makes them
    makes = (where.file, where.function) not in find_drivers(e)
    around = [x for x in e.function_slices(where) if makes or x.kind == WAIT or _is_starting(x)]
    others = join(found, around)
    every = join(others, waits)
    where = where if total(others) > 0.5 * total(every) else e.blame(waits)
    gone = GOES * total(others) + getting_ready * (total(every) - total(others))
    at_once = max(1, min(e.host_cores, len(e.session.shards) - 1))
    gone = max(0.0, min(gone, total(every) - e.work_of_processes_ns / at_once))  # what the workers do has to be waited for
    title = f"{{share}} of the training loop starts and ends workers, {starts:,} times, in {{function}}"
    said = f"{starts:,} starts of workers, pools or environments"
    return claim(
        e, every, "collect/worker_start", title, LEAST_SHARE, said, where=where, removes=gone / max(1.0, total(every))
    )  # fmt: skip
