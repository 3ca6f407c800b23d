"""Places of the user's own code that hold time no cause has explained, told by mechanism.

What lives here: the slices that are left, by what they are done for, and what could be gone of each. Functions that call for
env steps or learning (`main`, `train`, `rollout`) are drivers; what such a function calls besides is an activity, named after
the first function below it. Invariant: no name of a function decides anything.

What can be gone. A loop written in Python, over cells, agents, rows or time, can be one call over arrays, whatever it does for
each item. Code without one costs a floor each time round, which nothing but fewer rounds removes. Arithmetic that lasts is at
the machine's pace: it is named, and little is promised.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...model import shard as m
from ...model.code import is_standard
from ...model.mechanism import COMPUTING, DISPATCHING, GARBAGE, INTERPRETING, MOVING, STARTING, WAITING
from ...model.phase import COLLECT, EVAL, LEARN
from ..lines import plain_function
from ..owners import ENV, FRAMEWORK, owner_of
from .dependence import needs_its_past
from .evidence import ENV_METHODS, Evidence, Slice
from .others import find_culprit
from .rule import Candidate, function_name, main_mechanism, percent

Function = tuple[str, str]  # file, name
Region = tuple[str, str, int]  # file, function, first line of the loop in it; 0: all of the function
NO_REGION: Region = ("", "", 0)
Drivers = dict[Function, frozenset[int]]  # with their lines that lead to work

LEAST_SHARE, LEAST_SAVED = 0.10, 0.08
# Of what a function of Python's own library takes, below one place: from here on it is that place's matter. A choice: a little
# more than half.
MOST_OF_ONE = 0.6
LEADS = 0.2  # of a line's samples, or of a kind of work's; in old sessions up to 0.1 have a span of the code beside them
# What vectorised or compiled code keeps of a Python loop's time: 5 to 15 % (the loops of tests/diagnosis, by their fixes).
KEEPS = 0.10
# What a place costs each time round at least, also when arrays have taken the place of a loop: some twenty lines of Python with
# calls, or ten calls of arrays, take 5 to 20 us here.
FLOOR_NS = 20_000
# Of the time in code without a loop of its own, by mechanism, what another way to do it removes; the loop of a library (a data
# frame, a deep copy, a packer) is as much Python as one's own.
_PLAIN = {INTERPRETING: 0.85, MOVING: 0.95, DISPATCHING: 0.0, COMPUTING: 0.65}
_LOOPED = {INTERPRETING: 1 - KEEPS, DISPATCHING: 1 - KEEPS, MOVING: 0.95, COMPUTING: 0.75}
_OF_ENV = {COMPUTING: 0.2}  # what an environment computes is what it is for
# Of a library's function: what its options can save is not known; what code of the user's calls can be called less often.
_LIBRARY, _ASKED = 0.5, 0.85
# Of a recurrent cell's calls: nn.LSTM over the sequence takes 0.15 to 0.3 of the loop over its cell, nn.GRU 0.85 to 0.9 (8
# to 32 rows, 32 to 64 steps, with the backward pass, here); of others, the middle of the two.
WHOLE_SEQUENCE = {"LSTM": 0.78, "LSTMCell": 0.78, "GRU": 0.13, "GRUCell": 0.13}
OTHER_CELL = 0.5
_TENSOR_WORK = ("backward", "optimizer", "zero_grad", "clip_grad")
_COMPREHENSION = re.compile(r"[\[({].*\bfor\b.+\bin\b")
_EVENTS = ("env_step", "env_reset", "backward", "optimizer")
_NETWORKS = ("policy", "forward")
_MODULE, _CELLS = "torch/nn/modules/module.py", "torch/nn/modules/rnn.py"  # where a network's call begins


@dataclass(frozen=True, slots=True)
class Hot:
    """An activity that holds time."""

    where: m.Place
    slices: tuple[Slice, ...]
    mechanism: str
    share: float
    removes: float  # of the share
    looped: bool  # most of it is in a Python loop of the user's
    other: str = ""  # the thread or process it is in, which the loop waits for


def hot_places(e: Evidence) -> list[Hot]:
    """The activities of the user's own code among what is left, largest first."""
    drivers = find_drivers(e)
    groups: dict[tuple[Region, bool], list[Slice]] = defaultdict(list)  # calls of networks in it are another matter
    of_region = regions(e, drivers)
    for piece in e.left:
        if piece.index in of_region:
            groups[of_region[piece.index], _in_network(piece)].append(piece)
    found = [_measure(e, slices, {x.index: _in_loop(e, x, drivers) for x in slices}) for slices in groups.values()]
    return sorted((hot for hot in found if hot.share >= LEAST_SHARE), key=lambda hot: -hot.share * hot.removes)


def regions(e: Evidence, drivers: Drivers | None = None) -> dict[int, Region]:
    """By slice, what a rewrite would replace; without those that no rewrite of the user's code changes."""
    drivers = find_drivers(e) if drivers is None else drivers
    found: dict[int, Region] = {}
    in_network: dict[Region, list[Slice]] = defaultdict(list)
    for piece in e.slices:
        region = region_of(e, piece, drivers)
        if region is None:
            continue
        if _in_network(piece):
            in_network[region].append(piece)
        else:
            found[piece.index] = region
    for region, slices in in_network.items():
        free = [x for x in slices if _in_loop(e, x, drivers) and not in_sequence(e, x, drivers)]
        most = 2 * sum(x.ns for x in free) > sum(x.ns for x in slices)
        found |= {x.index: region for x in (slices if most else free)}  # of the rest its size is the axis, not its code
    return found


def _in_network(piece: Slice) -> bool:
    return any(label.rpartition("/")[2] in _NETWORKS for label in piece.labels)


def in_sequence(e: Evidence, piece: Slice, drivers: Drivers) -> bool:
    """Is it a network's call in loops that all need the result of the time before? Cells of recurrent networks are not meant:
    whole sequences of these are one call."""
    if any(p.file.replace("\\", "/").endswith(_CELLS) for p in piece.places):
        return False
    verdicts = [
        needs_its_past(e.session.sources[place.file].text, first, last, place.line)
        for place in above_network(piece)
        if e.is_yours(place)
        for first, last in _item_loops(e, place, drivers)
    ]
    return bool(verdicts) and all(verdicts)


def above_network(piece: Slice) -> Sequence[m.Place]:
    """What calls the network: a loop inside of it is another matter."""
    inside = next((i for i, p in enumerate(piece.places) if p.file.replace("\\", "/").endswith(_MODULE)), None)
    return piece.places[:inside]


def blame_caller(e: Evidence, slices: Iterable[Slice]) -> m.Place:
    """The function that calls the network, not the network's own code."""
    return e.blame([replace(x, places=tuple(above_network(x))) for x in slices])


def _in_loop(e: Evidence, piece: Slice, drivers: Drivers) -> bool:
    chain = [p for p in piece.places if e.is_yours(p)]
    return is_looped(e, [p for p in chain if _key(p) not in drivers] or chain[-1:], drivers)


def region_of(e: Evidence, piece: Slice, drivers: Drivers) -> Region | None:
    """What a rewrite would replace: the outermost loop over items, else the function that a driver has called. None: this is a
    wait, the work of a library, or the tensors' own."""
    chain = [p for p in piece.places if e.is_yours(p)]
    if not chain or piece.kind == m.WAIT or any(label.rpartition("/")[2] in _TENSOR_WORK for label in piece.labels):
        return None
    if _is_library_work(e, piece, chain[-1]):
        return None
    for place in chain:
        key = _key(place)
        if key not in drivers:
            return *key, 0
        if items := _item_loops(e, place, drivers):
            return *key, items[-1][0]
    return *_key(chain[-1]), 0


def _is_library_work(e: Evidence, piece: Slice, own: m.Place) -> bool:
    """Has the user's code handed over to the RL library or the environment's?"""
    inner = piece.places[piece.places.index(own) + 1 :]
    return any(owner_of(p.file, e.owners) in (FRAMEWORK, ENV) for p in inner)


def _measure(e: Evidence, slices: list[Slice], loops: dict[int, bool]) -> Hot:
    work = [x for x in slices if main_mechanism([x]) not in (WAITING, GARBAGE, STARTING)]
    whole = sum(x.ns for x in work) or 1.0
    mechanism = main_mechanism(work)
    removed = sum(x.ns * share * _goes(x, name, loops[x.index], mechanism) for x in work for name, share in x.mechanisms)
    looped = sum(x.ns for x in work if loops[x.index]) > 0.5 * whole
    removed = min(removed, max(0.0, whole - FLOOR_NS * e.session.machine.slowness * e.turns))
    where = e.blame([x for x in work if main_mechanism([x]) == mechanism]) if work else m.Place()
    return Hot(where, tuple(work), mechanism, e.share(work), removed / whole, looped)


def _goes(piece: Slice, mechanism: str, looped: bool, mostly: str) -> float:
    """Of time spent so, what another way to do it removes. The small calls beside arithmetic that is left out go with it."""
    if mechanism == DISPATCHING and mostly == COMPUTING:
        mechanism = COMPUTING
    if mechanism == DISPATCHING:
        for place in piece.places:
            if place.file.replace("\\", "/").endswith(_CELLS):
                return WHOLE_SEQUENCE.get(place.function.partition(".")[0], OTHER_CELL)
    in_env = not looped and any(label.rpartition("/")[2] in ("env_step", "env_reset") for label in piece.labels)
    return ({**_PLAIN, **_OF_ENV} if in_env else _LOOPED if looped else _PLAIN).get(mechanism, 0.0)


def find_drivers(e: Evidence) -> Drivers:
    """Functions that call for work (steps of environments, learning, evaluating), with the lines that do.

    One sample proves nothing: the sampler reads a stack and its span while the thread runs on. A line leads to work if most
    of what is seen through it is work, or much of some work is seen through it."""
    through: Counter[tuple[Function, int]] = Counter()  # samples
    led: dict[int, Counter[tuple[Function, int]]] = defaultdict(Counter)  # by the kind of work
    seen: Counter[int] = Counter()
    for piece in e.slices:
        kind, count = work_of(piece), max(1, piece.samples)
        for at in {(_key(p), p.line) for p in piece.places if e.is_yours(p)}:
            through[at] += count
        if not kind:
            continue
        seen[kind] += count
        for place in piece.places:
            if kind != LEARN and place.function.rpartition(".")[2] in ENV_METHODS:
                break  # from here on it is the environment's own
            if not _is_event(piece) and owner_of(place.file, e.owners) == FRAMEWORK:
                break  # the library collects or learns, and calls the user's code for a part of it
            if e.is_yours(place):
                led[kind][_key(place), place.line] += count
    drivers: dict[Function, set[int]] = defaultdict(set)
    for kind, lines in led.items():
        for (key, line), count in lines.items():
            if count >= LEADS * through[key, line] or count >= LEADS * seen[kind]:
                drivers[key].add(line)
    return {key: frozenset(lines) for key, lines in drivers.items()}


def work_of(piece: Slice) -> int:
    """The kind of work a slice is part of, 0: none."""
    for label in piece.labels:
        part = label.rpartition("/")[2]
        if part in ("env_step", "env_reset", "rollout"):
            return EVAL if label.startswith("eval/") else COLLECT
        if part in ("backward", "optimizer", "train"):
            return LEARN
    return 0


def _is_event(piece: Slice) -> bool:
    """Is it a step or an update itself, not only within the library's collecting or learning?"""
    return any(label.rpartition("/")[2] in _EVENTS for label in piece.labels)


def is_looped(e: Evidence, chain: Sequence[m.Place], drivers: Drivers) -> bool:
    """Is there a loop of the user's around this, below the loop of the training itself?"""
    names = [_key(p) for p in chain]
    if len(set(names)) < len(names):
        return True  # it calls itself
    for place in chain:
        if place.function.endswith(("comp>", "<genexpr>")):
            return True
        # from Python 3.12 on a comprehension is no function of its own
        if _COMPREHENSION.search(e.text(place)) and place.line not in drivers.get(_key(place), ()):
            return True
        if _item_loops(e, place, drivers):
            return True
    return False


def _item_loops(e: Evidence, place: m.Place, drivers: Drivers) -> list[tuple[int, int]]:
    """The loops around a line, within its function, that lead to no work of the training; innermost first."""
    leads = drivers.get(_key(place), frozenset())
    return [(a, b) for _, a, b in e.loop_blocks(place) if not any(a <= line <= b for line in leads)]


def _key(place: m.Place) -> Function:
    return place.file, plain_function(place.function)


def of_mechanism(e: Evidence, mechanisms: Iterable[str]) -> list[Hot]:
    """The hot places whose time is mostly spent so."""
    wanted = frozenset(mechanisms)
    found = [hot for hot in hot_places(e) if hot.mechanism in wanted and _is_worth_it(hot)]
    return found + [hot for hot in _in_others(e) if hot.mechanism in wanted]


def _in_others(e: Evidence) -> list[Hot]:
    """What another thread or process does, while the loop waits for it: the place that holds most."""
    culprit = find_culprit(e)
    if culprit is None or not culprit.places:
        return []
    top = culprit.places[0]
    if not e.is_yours(top.where):
        return []  # what a worker does between its tasks
    share = e.share(culprit.waits) * (1 - culprit.limits) * top.share
    looped = any(is_looped(e, [p for p in x.places if e.is_yours(p)][-1:], {}) for x in top.stacks)
    removes = (_LOOPED if looped else _PLAIN).get(top.mechanism, 0.0)
    hot = Hot(top.where, culprit.waits, top.mechanism, share, removes, looped, culprit.name)
    return [hot] if share >= LEAST_SHARE and _is_worth_it(hot) else []


def _is_worth_it(hot: Hot) -> bool:
    """Arithmetic is told wherever it is much: how much of it can go is not known."""
    return hot.mechanism == COMPUTING or hot.share * hot.removes >= LEAST_SAVED


def library_places(e: Evidence) -> list[Hot]:
    """Functions of RL and environment libraries, below those that run the training, that hold time no cause has explained."""
    runs = {_key(p) for x in e.slices if _is_event(x) for p in _outside_of_work(e, x)}
    groups: dict[Function, list[Slice]] = defaultdict(list)
    for piece in e.left:
        vector = is_vector(piece.label)  # its own time, between the environments in it
        if piece.kind == m.WAIT or (_is_core(piece) and not vector) or not is_library(e, piece):
            continue
        known = [_key(p) in runs or e.is_yours(p) or (vector and _is_step(p)) for p in piece.places]
        last = max((i for i, is_known in enumerate(known) if is_known), default=-1)
        below = [p for p in piece.places[last + 1 :] if owner_of(p.file, e.owners) in (FRAMEWORK, ENV)]
        if below:
            groups[_key(below[0])].append(piece)
    found = []
    for key, slices in groups.items():
        share = e.share(slices)
        if share >= LEAST_SHARE:
            lines: Counter[m.Place] = Counter()
            for piece in slices:
                lines[next(p for p in piece.places if _key(p) == key)] += round(piece.ns)
            asked = sum(
                x.ns for x in slices if is_vector(x.label) or any(e.is_yours(p) and _key(p) not in runs for p in x.places)
            )
            removes = _ASKED if 2 * asked > sum(x.ns for x in slices) else _LIBRARY
            found.append(Hot(lines.most_common(1)[0][0], tuple(slices), main_mechanism(slices), share, removes, False))
    return sorted(found, key=lambda hot: -hot.share)


def shared_function(e: Evidence) -> Hot | None:
    """The function of Python's own library that holds most of what no cause has explained, below several places of the user's
    of which none has most of it: what makes all of them call it is elsewhere (a debug mode, a logger, a hook)."""
    of_region = regions(e)
    by: dict[Function, dict[Region, float]] = defaultdict(lambda: defaultdict(float))
    below: dict[Function, list[Slice]] = defaultdict(list)
    for piece in e.left:
        if piece.index not in of_region or main_mechanism([piece]) in (WAITING, GARBAGE, STARTING):
            continue
        own = max(i for i, p in enumerate(piece.places) if e.is_yours(p))
        for key in dict.fromkeys(_key(p) for p in piece.places[own + 1 :] if is_standard(p.file)):
            by[key][of_region[piece.index]] += piece.ns
            below[key].append(piece)
    spread = [key for key, parts in by.items() if max(parts.values()) <= MOST_OF_ONE * sum(parts.values())]
    most = max((e.share(below[key]) for key in spread), default=0.0)
    if most < LEAST_SHARE:
        return None
    key = next(key for key in below if key in spread and e.share(below[key]) >= 0.9 * most)  # the outermost of them
    lines = Counter(next(p for p in piece.places if _key(p) == key) for piece in below[key])
    slices = tuple(below[key])
    return Hot(lines.most_common(1)[0][0], slices, main_mechanism(slices), e.share(slices), _ASKED, False)


def _is_core(piece: Slice) -> bool:
    return any(label.rpartition("/")[2] in (*_EVENTS, *_NETWORKS, *_TENSOR_WORK) for label in piece.labels)


def _is_step(place: m.Place) -> bool:
    return place.function.rpartition(".")[2] in ENV_METHODS


def is_vector(label: str) -> bool:
    """The span of a vector environment's own time: one around many, which is its work."""
    return any(word in label for word in ("VecEnv.", "VectorEnv.", "Vec.", "ParallelEnv."))


def is_library(e: Evidence, piece: Slice) -> bool:
    """Does it end in a library, not in code of the user's that the library calls?"""
    own = next((p for p in reversed(piece.places) if e.is_yours(p)), None)
    return own is None or _is_library_work(e, piece, own)


def _outside_of_work(e: Evidence, piece: Slice) -> list[m.Place]:
    """The functions around a step of an environment or an update: not those of the environment."""
    names = [p.function.rpartition(".")[2] for p in piece.places]
    end = next((i for i, name in enumerate(names) if name in ENV_METHODS), len(names))
    return list(piece.places[:end])


def say(e: Evidence, hot: Hot, doing: str, calls: bool = False) -> Candidate:
    """What a cause that is told by its mechanism alone says of a place."""
    where = f", in {hot.other}, which the training waits for" if hot.other else ""
    return Candidate(
        f"for {percent(hot.share)} of the training loop {function_name(hot.where)} {doing}{where}",
        hot.where, hot.slices[0].label or "between calls", hot.slices, share=hot.share if hot.other else None,
        removes=hot.removes, calls=calls, mechanism=hot.mechanism,
        evidence=(f"{hot.share * e.loop_ns / e.turns / 1000:,.0f} µs each time round the loop: {e.turns:,} steps and updates",),
    )  # fmt: skip
