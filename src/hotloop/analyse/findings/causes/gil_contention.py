"""Another Python thread holds the interpreter.

A thread that computes in Python (a monitor, a loader, a logger) takes the interpreter lock away from the training thread.

Recognised by: another thread of the main process seen at work, not waiting, in a large part of the looks at it.

What to do: move that work into a process, or let it sleep.
"""

from __future__ import annotations

from collections import defaultdict

from ....model.shard import WAIT
from ..evidence import Evidence, Where
from ..rule import Candidate, Cause, percent, predict

CAUSE = Cause(
    "gil-contention",
    "another Python thread holds the interpreter",
    "move that thread's work into a process, or do it less often",
)
LEAST_BUSY = 0.25
_IDLE = (
    "wait",
    "acquire",
    "get",
    "select",
    "poll",
    "accept",
    "recv",
    "_recv",
    "sleep",
    "join",
    "_wait_for_tstate_lock",
    "result",
    "readline",
    "_read",
    "_worker",
)


def look(e: Evidence) -> Candidate | None:
    early = sum(x.count for x in e.looks if x.shard == 0 and x.early and x.track == e.main_track)
    ticks = max(1, e.session.shards[0].samples.ticks - early)
    busy: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    total = 0
    for x in e.looks:
        if x.shard or x.early or x.track == e.main_track or e.ledger.tree[x.branch].kind == WAIT:
            continue
        last = x.places[-1]
        if last.function.rpartition(".")[2] in _IDLE or any(
            w in e.text(last) for w in (".sleep(", ".wait(", ".get(", ".acquire(")
        ):
            continue
        if any(label.endswith("env_step") for label in e.labels_of(x.branch)):
            continue  # threads that step environments are how the script works
        total += x.count
        own = e.innermost(x.places) or last
        busy[own.file, own.function][0] += x.count
        busy[own.file, own.function][1] = own.line
    share = min(1.0, total / ticks)
    if share < LEAST_BUSY or not busy:
        return None
    (file, function), (_, line) = max(busy.items(), key=lambda item: item[1][0])
    lost = share * 0.5
    return Candidate(
        CAUSE,
        f"another thread computes in Python {percent(share)} of the time, in {function}, "
        "and takes the interpreter from training",
        Where(file, int(line), function),
        "wait",
        (),
        share=lost,
        gain=predict(lost, 0.9, 0.1),
        evidence=(f"seen at work in {percent(share)} of {ticks:,} looks",),
    )
