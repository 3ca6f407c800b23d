"""The job: one training, however many processes it is made of. Every rate, comparison and verdict is of the job.

What lives here: which processes learn, what the job has done, and in which time.
    learner    a process that takes optimizer steps; without any, the process the session was started in
    env steps  each counted once, at the level the learner sees: a vector environment whose sub-environments live in workers is
               stepped by the learner, and what the workers count are the same steps
    loop       the learner's, see model/numbers.py; it begins with the workers where these step for it before it learns
Who may touch it: anyone; pure, standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from . import shard as m
from .ledger import Branch, Ledger, fold
from .numbers import Numbers, measure_loop, take_numbers
from .phase import COLLECT, STARTUP

ENV_WORK = ("env_steps", "autoresets")  # counted where the learner steps, or else in the workers
FACT = "~"  # begins the name of a counter that is no work: what hooks saw now and then
_STEP = "collect/env_step"
_BEFORE = "collect/other"
_OWN_WAIT = "(waiting: sleep)"  # for no other process
_AGREE = 0.02  # two counts of the same steps differ by resets and by what was on its way when the run ended


def find_learners(shards: Sequence[m.Shard], root: int = 0) -> list[int]:
    """The processes that learn, the one with the longest loop first; at least one."""
    learners = [i for i, shard in enumerate(shards) if shard.counters.get("updates", 0) > 0]
    return sorted(learners, key=lambda i: (-_clock_ns(shards[i]), i != root, i)) or [root]


def order_processes(shards: Sequence[m.Shard], root_pid: object) -> list[int]:
    """The learner first, then the process the session was started in, then the others as they began."""
    order = sorted(range(len(shards)), key=lambda i: (shards[i].pid != root_pid, shards[i].start_ns, shards[i].id))
    learners = find_learners(shards, order[0]) if order else []
    return [*learners, *(i for i in order if i not in learners)]


def _clock_ns(shard: m.Shard) -> int:
    return max(0, shard.last_work_ns - shard.first_work_ns)


def fold_job(shards: Sequence[m.Shard]) -> Ledger:
    """The books of a session, the learner first. While workers take the first env steps, a learner that has none of its own
    waits for them: that is no start-up any more, but collecting."""
    ledger = fold(shards)
    numbers = take_numbers(ledger)
    earlier_ns = min(head_ns(shards), numbers.startup_ns)
    return _begin_earlier(ledger, earlier_ns) if numbers.known and earlier_ns else ledger


def head_ns(shards: Sequence[m.Shard]) -> int:
    """How long before the learner's first update the workers took their first env step."""
    learner = shards[0]
    first = [s.first_work_ns for s in shards[1:] if s.counters.get("env_steps", 0) and s.first_work_ns > learner.start_ns]
    if learner.counters.get("env_steps", 0) or not first or not learner.first_work_ns:
        return 0
    return max(0, learner.first_work_ns - min(first))


def _begin_earlier(ledger: Ledger, ns: int) -> Ledger:
    """The same with that much of the start-up as collecting, between calls."""
    track = next(b.track for b in ledger.balances if b.shard == 0)
    tree, parts = list(ledger.tree), []
    for shard, own_track, at, own in ledger.self_by_track:
        moved = min(ns, own) if (shard, own_track) == (0, track) and tree[at].phase == STARTUP else 0
        if moved:
            ns -= moved
            tree[at] = replace(tree[at], self_ns=tree[at].self_ns - moved)
            parts.append((0, track, len(ledger.tree), moved))
        parts.append((shard, own_track, at, own - moved))
    moved = sum(own for _, _, at, own in parts if at == len(ledger.tree))
    tree.append(Branch(0, _BEFORE, m.INFERRED, 0, moved, phase=COLLECT))
    balances = tuple(
        replace(b, inferred_ns=b.inferred_ns + moved) if (b.shard, b.track) == (0, track) else b for b in ledger.balances
    )
    return replace(ledger, balances=balances, tree=tuple(tree), self_by_track=tuple(parts))


def job_loop_ns(shards: Sequence[m.Shard], numbers: Numbers) -> int:
    """How long the loop of the job took."""
    learner = shards[0]
    if numbers.known or learner.last_work_ns:
        return measure_loop(learner, numbers)
    working = [shard for shard in shards if shard.last_work_ns]  # none of it in the process that was started
    if not working:
        return numbers.lifetime_ns
    return max(s.last_work_ns for s in working) - min(s.first_work_ns for s in working)


def count_work(shards: Sequence[m.Shard]) -> dict[str, int]:
    """The counters of the job, in the order they were first counted; facts included."""
    learners = find_learners(shards)
    own = [shards[i] for i in learners]
    workers = [shard for i, shard in enumerate(shards) if i not in learners]
    counted = {name: sum(shard.counters.get(name, 0) for shard in shards) for shard in shards for name in shard.counters}
    if any(shard.counters.get("env_steps", 0) for shard in own) and steps_for(own, workers):
        seen, done = ({name: sum(shard.counters.get(name, 0) for shard in some) for name in counted} for some in (own, workers))
        counted |= {name: seen[name] for name in ENV_WORK if name in seen}
        if "episodes" in counted:  # where its results tell, else where the sub-environments are
            counted["episodes"] = seen["episodes"] or done["episodes"]
        if "resets" in counted:
            counted["resets"] = done["resets"] or seen["resets"]
    return {name: n for name, n in counted.items() if n > 0}


def steps_for(learners: Sequence[m.Shard], workers: Sequence[m.Shard]) -> bool:
    """Do the workers step environments for the learners, so that both count the same steps? They do where a learner waits for
    other processes in its env steps, or where both counts agree."""
    seen, done = (sum(shard.counters.get("env_steps", 0) for shard in some) for some in (learners, workers))
    if not done:
        return False
    return any(map(_waits_in_steps, learners)) or abs(done - seen) <= _AGREE * seen


def _waits_in_steps(shard: m.Shard) -> bool:
    """Is there a wait in at least every other env step?"""
    below: list[bool] = []  # by path: in an env step
    for i, path in enumerate(shard.paths):
        name = shard.labels[path.label].name
        below.append(name == _STEP or bool(i and path.parent < i and below[path.parent]))
    steps = waits = 0
    for node in shard.nodes:
        label = shard.label_of(node.path)
        if label.name == _STEP:
            steps += node.count
        elif label.kind == m.WAIT and label.name != _OWN_WAIT and below[node.path]:
            waits += node.count
    return steps > 0 and 2 * waits >= steps
