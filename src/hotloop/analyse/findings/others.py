"""What other threads and processes did while the loop waited for them.

What lives here: the lanes beside the training's thread as they were sampled, and of these the one the loop waits for. It is
the one that is at work longest, or, where nobody is, the one that lets time limits pass: it sleeps, or waits for what
does not come in time, while all others wait for it in turn. Invariant: what others are said to hold is never more than
the loop waited.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...model import shard as m
from ...model.mechanism import GARBAGE, WAITING
from ..lines import AT_WORK, Stack, plain_function
from ..mechanisms import callee
from ..phases import FOR_OTHERS
from .evidence import Evidence, Slice
from .rule import total

LEAST_WAIT = 0.10  # of the loop
LEAST_EXPLAINED = 0.4  # of the wait, by the one lane: two cores that take turns leave each half
SLEEP = "(waiting: sleep)"
_Thread = tuple[int, int, str, str]  # process, track, and where it begins if it has none


@dataclass(frozen=True, slots=True)
class Share:
    """A place in another lane."""

    where: m.Place
    mechanism: str
    share: float  # of the loop's waiting for it
    stacks: tuple[Stack, ...]


@dataclass(frozen=True, slots=True)
class Culprit:
    """Whom the loop waits for, and what it does meanwhile."""

    name: str
    waits: tuple[Slice, ...]  # of the loop
    limits: float  # of the waiting: it let a time limit pass
    places: tuple[Share, ...]  # at work, largest first
    limit_place: m.Place
    samples: int


def find_culprit(e: Evidence) -> Culprit | None:
    """None: the loop does not wait for others, or nothing they do explains it."""
    waits = tuple(x for x in e.left if x.part(WAITING) > 0.5 and x.label in FOR_OTHERS | {"(waiting: process)"})
    if e.share(waits) < LEAST_WAIT:
        return None
    main = _count(x for x in e.stacks if (x.shard, x.track, x.early) == (0, e.main_track, False))
    lanes = _lanes(e)
    if not lanes or not main:
        return None
    waited = total(waits) / e.loop_ns
    best = max(lanes.values(), key=lambda stacks: _at_work(stacks) + _expired(e, stacks))
    ticks = main if best[0].shard == 0 else max(1, _count(best))
    work, limits = _at_work(best) / ticks, _expired(e, best) / ticks
    if work + limits < LEAST_EXPLAINED * waited:
        return None
    places = _places(e, [x for x in best if x.state in AT_WORK])
    held = [x for x in best if _part_expired(e, x) > 0.5]
    if 2 * _count(x for x in held if is_env(e, x)) > _count(held):
        limits, held = 0.0, []  # environments that wait for the world are another matter
    limits = limits / (work + limits) if limits else 0.0
    return Culprit(_name(e, best[0]), waits, limits, places, _blame(e, held) if held else m.Place(), _count(best))


def _lanes(e: Evidence) -> dict[_Thread, list[Stack]]:
    """By thread, what was seen of it while the loop ran; without threads that only log for a library."""
    lanes: dict[_Thread, list[Stack]] = defaultdict(list)
    for x in e.stacks:
        if (x.shard, x.track) != (0, e.main_track) and not x.early and x.state != m.UNKNOWN:
            first = next((p for p in x.places if not p.file.endswith("threading.py")), x.places[0])
            lanes[(x.shard, x.track, "", "") if x.track >= 0 else (x.shard, -1, first.file, first.function)].append(x)
    return lanes


def is_env(e: Evidence, x: Stack) -> bool:
    return any(label.rpartition("/")[2] in ("env_step", "env_reset") for label in e.labels_of(x.branch))


def _at_work(stacks: Iterable[Stack]) -> float:
    return _count(x for x in stacks if x.state in AT_WORK)


def _expired(e: Evidence, stacks: Iterable[Stack]) -> float:
    return sum(x.count * _part_expired(e, x) for x in stacks)


def _part_expired(e: Evidence, x: Stack) -> float:
    """Of the time at this stack, what a time limit ended: by the recorder's clock; of threads without spans, by the text."""
    if x.state in AT_WORK:
        return 0.0
    if e.ledger.tree[x.branch].name == SLEEP:
        return 1.0
    if x.track >= 0 and e.ledger.tree[x.branch].kind == m.WAIT:
        return e.expired_part(x.shard, x.track, x.branch)
    own = e.innermost(x.places)
    return float(own is not None and x.track < 0 and callee(e.mechanisms.expression(own)) == "sleep")


def _places(e: Evidence, stacks: Sequence[Stack]) -> tuple[Share, ...]:
    """By the innermost function of the user's, else of whoever's, and by mechanism."""
    groups: dict[tuple[str, str, str], list[Stack]] = defaultdict(list)
    for x in stacks:
        own = e.innermost(x.places) or x.places[-1]
        mechanism = max(e.mechanisms.of(x), key=lambda part: part[1])[0]
        if mechanism not in (WAITING, GARBAGE):
            groups[own.file, plain_function(own.function), mechanism].append(x)
    whole = _count(stacks) or 1
    found = [Share(_blame(e, xs), key[2], _count(xs) / whole, tuple(xs)) for key, xs in groups.items()]
    return tuple(sorted(found, key=lambda share: -share.share))


def _blame(e: Evidence, stacks: Sequence[Stack]) -> m.Place:
    lines: Counter[m.Place] = Counter()
    for x in stacks:
        own = e.innermost(x.places) or x.places[-1]
        lines[m.Place(own.file, plain_function(own.function), own.line, own.first_line)] += x.count
    return lines.most_common(1)[0][0]


def _name(e: Evidence, x: Stack) -> str:
    tracks = e.session.shards[x.shard].tracks
    if x.shard:
        return f"process {e.session.processes[x.shard].name or e.session.shards[x.shard].pid}"
    name = next((t.name for t in tracks if t.id == x.track), "")
    return f"thread {name}" if name else "another thread"


def _count(stacks: Iterable[Stack]) -> int:
    return sum(x.count for x in stacks)
