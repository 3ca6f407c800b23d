"""The environment waits on a socket, a server or a sleep, one at a time.

What to do: remove sleeps that are only there for watching. Else let several environments, each with its own connection, wait
at the same time: in threads (a waiting thread does not hold the interpreter), with asyncio or in a vector environment.

    results = [env.step(a) for env, a in zip(envs, actions)]              # before: the waits add up
    results = list(pool.map(lambda env, a: env.step(a), envs, actions))   # after: pool = ThreadPoolExecutor(len(envs))

A simulator behind a socket, a robot's control period, a rate limit: while one environment waits, nothing else happens.
Recognised by: time in sleep, socket and select calls inside `step` or `reset`, in the main thread or in the workers it waits
for. The period of a single real robot cannot be shortened; learn while it moves."""

from __future__ import annotations

import re

from ....model.shard import WAIT
from ..evidence import ENV_METHODS, Evidence, Slice
from ..rule import Candidate, function_name, percent, total

TURN = 50
ACTION = "do not wait while training, or let the environments wait at the same time (threads, asyncio, a vector environment)"
LEAST_SHARE = 0.12
GOES = 0.85  # of the waiting: what waits side by side has to be started and collected (0.80 to 0.86 of it went in three cases)
_WAITS = ("(waiting: sleep)", "(waiting: socket)", "(waiting: select)")
_READS = re.compile(r"\.readline\(|\.recv\(|stdout\.read|urlopen|requests\.|\.getresponse\(")


def find(e: Evidence) -> Candidate | None:
    waits = [x for x in e.where_label("env_step", "env_reset") if _waits(e, x)]
    share = e.share(waits)
    note = "in the main thread"
    lane: list[Slice] = waits
    if share < LEAST_SHARE:
        share, lane = _in_workers(e)
        waits = [x for x in e.where_label("env_step", "env_reset") if x.kind == WAIT] if lane else []
        note = "in the workers, which the main thread waits for"
    if share < LEAST_SHARE:
        return None
    # environments that are stepped one after the other can wait at the same time: then one wait is left of all
    together = sum((x.shard, x.track) == (0, e.main_track) for x in e.diagnosis.environments) if lane is waits else 0
    where = e.blame(lane, ENV_METHODS)
    kinds = sorted({x.label for x in lane if x.kind == WAIT})
    return Candidate(
        f"for {percent(share)} of the training loop the environment only waits, in {function_name(where)}",
        where,
        "collect/env_step",
        tuple(waits),
        share=share,
        removes=GOES * (1 - 1 / together if together > 1 else 1.0),
        evidence=(f"it waited {note}: {', '.join(kinds) or 'blocking reads'}",),
    )


def _waits(e: Evidence, piece: Slice) -> bool:
    if piece.kind == WAIT and piece.label in _WAITS:
        return True
    return bool(piece.places) and piece.kind != WAIT and bool(_READS.search(e.text(piece.places[-1])))


def _in_workers(e: Evidence) -> tuple[float, list[Slice]]:
    """How much of the main thread's waiting for workers is their environments' waiting."""
    waiting = e.share(x for x in e.where_label("env_step") if x.kind == WAIT)
    best: tuple[float, list[Slice]] = (0.0, [])
    for balance in e.ledger.balances:
        if (balance.shard, balance.track) == (0, e.main_track):
            continue
        slices = e.lane(balance.shard, balance.track)
        steps = [x for x in slices if any(label.endswith("env_step") for label in x.labels)]
        waits = [x for x in steps if _waits(e, x)]
        if total(steps) and total(waits) / total(steps) > 0.5 and waiting * total(waits) / total(steps) > best[0]:
            best = waiting * total(waits) / total(steps), waits
    return best
