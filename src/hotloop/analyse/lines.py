"""Lines: what the stack sampler saw, by line of the code that is responsible.

What lives here: from stacks to lines. The responsible line of a stack is the innermost one in the user's own code; without
any, the innermost of all. Where a stretch between two events of different phases is to be divided, its samples are told apart
by the block of the program their line stands in. Pure; `blocks` are what the run kept of the sources (see store/sources.py).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model import shard as m
from ..model.code import is_ours, is_yours
from ..model.ledger import Ledger
from ..model.phase import DECIDING
from .owners import YOURS, owner_of

Blocks = Mapping[str, Sequence[tuple[int, int]]]  # by file: first and last line of every block of statements


@dataclass(frozen=True, slots=True)
class Stack:
    """One sampled stack: where in the tree of spans, which places, how often."""

    shard: int
    track: int
    branch: int  # in the ledger's tree
    places: tuple[m.Place, ...]  # outermost first
    count: int
    early: bool
    state: int = m.UNKNOWN
    holds_gil: bool = False
    call: int = m.UNKNOWN  # SHORT or LASTING


@dataclass(frozen=True, slots=True)
class Line:
    file: str
    line: int
    function: str
    first_line: int
    phase: int
    span: str  # the innermost span it was seen in
    samples: int
    share: float  # of the samples of its thread while the loop ran
    shard: int
    track: int
    at_work: int = 0  # of the samples, those at which the thread was not blocked; all of them where states are unknown
    inner: str = ""  # the function most often at work there, where it is another: name (file:line)
    spent: tuple[tuple[str, float], ...] = ()  # samples by mechanism, most first


AT_WORK = frozenset({m.RUNNING, m.WANTS_GIL})  # what wants the interpreter would run
_PURE = 0.9  # of what a line was seen leading to: less, and it speaks for no phase (`main()`, a helper of two phases)
# What runs below it is the profiler's, torch's files too.
_DEEP = re.compile(r"[/\\]hotloop[/\\]integrations[/\\](deep_window|trace)\.py$")


def read_stacks(shards: Sequence[m.Shard], ledger: Ledger) -> tuple[Stack, ...]:
    """Every distinct stack of a session."""
    stacks = []
    for index, shard in enumerate(shards):
        samples = shard.samples
        chains: list[tuple[m.Place, ...] | None] = []
        for parent, place in samples.stacks:
            above = chains[parent] if parent >= 0 else ()
            here = samples.places[place]
            if above is None or _DEEP.search(here.file):
                chains.append(None)
            else:
                chains.append(above if is_ours(here.file) else (*above, here))
        all_early = all(s.early for s in samples.counts)
        for stack, path, track, count, early, state, holds_gil, call in samples.counts:
            chain = chains[stack]
            if chain:
                branch, early = ledger.branch_of[index][path], early and not all_early
                stacks.append(Stack(index, track, branch, chain, count, early, state, holds_gil, call))
    return tuple(stacks)


def shards_with_states(stacks: Iterable[Stack]) -> set[int]:
    """The processes whose sampler could tell what threads did."""
    return {stack.shard for stack in stacks if stack.state != m.UNKNOWN}


def responsible(places: Sequence[m.Place]) -> m.Place:
    """The innermost place in the user's own code, else the innermost."""
    for place in reversed(places):
        if is_yours(place.file):
            return place
    return places[-1]


def list_lines(
    stacks: Sequence[Stack],
    ledger: Ledger,
    blocks: Blocks,
    mechanisms: Callable[[Stack], Iterable[tuple[str, float]]] = lambda stack: (),
) -> tuple[Line, ...]:
    """The lines of the loop, most seen first; between two events, with the phase their place in the program speaks for."""
    spent: dict[tuple[int, int, m.Place, int], Counter[str]] = defaultdict(Counter)
    known = phases_of_lines(stacks, ledger)
    totals: Counter[tuple[int, int]] = Counter()
    seen: Counter[tuple[int, int, m.Place, int]] = Counter()
    inner: dict[tuple[int, int, m.Place, int], Counter[m.Place]] = defaultdict(Counter)
    at_work: Counter[tuple[int, int, m.Place, int]] = Counter()
    known_states = shards_with_states(stacks)
    for stack in stacks:
        if stack.early:
            continue
        totals[stack.shard, stack.track] += stack.count
        key = stack.shard, stack.track, responsible(stack.places), stack.branch
        seen[key] += stack.count
        inner[key][stack.places[-1]] += stack.count
        for name, share in mechanisms(stack):
            spent[key][name] += stack.count * share  # type: ignore[assignment]
        if stack.shard not in known_states or stack.state in AT_WORK:
            at_work[key] += stack.count
    lines = []
    for (shard, track, place, branch), count in seen.most_common():
        top = ledger.tree[branch]
        phase = top.phase if top.kind not in (m.ROOT, m.INFERRED) else guess_phase([place], known, blocks)
        ((most, _),) = inner[shard, track, place, branch].most_common(1)
        lines.append(
            Line(
                file=place.file, line=place.line, function=place.function, first_line=place.first_line, phase=phase,
                span=top.name, samples=count, share=count / totals[shard, track], shard=shard, track=track,
                at_work=at_work[shard, track, place, branch],
                inner="" if most == place else f"{most.function} ({most.file}:{most.line})",
                spent=tuple(spent[shard, track, place, branch].most_common()),
            )
        )  # fmt: skip
    return tuple(lines)


def fold_lines(lines: Iterable[Line], at_work: bool = False) -> tuple[Line, ...]:
    """Each line once for every phase and span it was seen in, most seen first; comprehensions are part of the function they
    stand in. Shares are of what is listed; `at_work`: only the samples at which a thread was not blocked count."""
    chosen = [(line, line.at_work if at_work else line.samples) for line in lines]
    total = sum(count for _, count in chosen) or 1
    merged: dict[tuple[str, int, str, int, str], tuple[Line, int, Counter[str]]] = {}
    for line, count in chosen:
        key = line.file, line.line, plain_function(line.function), line.phase, line.span
        first, before, spent = merged.get(key, (line, 0, Counter()))
        merged[key] = first, before + count, spent + Counter(dict(line.spent))
    found = sorted(((key, *kept) for key, kept in merged.items() if kept[1]), key=lambda row: -row[2])
    return tuple(
        replace(line, function=key[2], samples=count, share=count / total, spent=tuple(spent.most_common()))
        for key, line, count, spent in found
    )


_COMPREHENSION = re.compile(r"((\.<locals>)?\.<(genexpr|listcomp|setcomp|dictcomp|lambda)>)+$")


def plain_function(name: str) -> str:
    """The function as its author knows it: a comprehension or lambda is part of the one it stands in.

    >>> plain_function("Grid.flood.<locals>.<genexpr>"), plain_function("main.<locals>.act")
    ('Grid.flood', 'main.<locals>.act')
    """
    return _COMPREHENSION.sub("", name) or name


# ---- whose is the time between two events ----


def phases_of_lines(stacks: Iterable[Stack], ledger: Ledger) -> dict[tuple[str, str], dict[int, int]]:
    """By (file, function) of the user's code: its lines that were seen leading to work of a known phase."""
    votes: dict[tuple[str, str], dict[int, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    for stack in stacks:
        branch = ledger.tree[stack.branch]
        if stack.early or not branch.phase or branch.kind == m.INFERRED:
            continue
        for place in stack.places:
            if owner_of(place.file) == YOURS:
                votes[place.file, place.function][place.line][branch.phase] += stack.count
    return {
        key: {
            line: count.most_common(1)[0][0]
            for line, count in lines.items()
            if count.most_common(1)[0][1] >= _PURE * sum(count.values())
        }
        for key, lines in votes.items()
    }


def guess_phase(places: Sequence[m.Place], known: Mapping[tuple[str, str], Mapping[int, int]], blocks: Blocks) -> int:
    """The phase of a stack seen between two events, 0 if nothing speaks for one: that of the nearest line with a known phase
    in the innermost block that holds one. Before it, if that line stands in the block itself; a loop beside it has ended, so
    after it then; a line that only logs or saves speaks for its own block alone."""
    for place in reversed(places):
        lines = known.get((place.file, place.function))
        if not lines:
            continue
        if place.line in lines:
            return lines[place.line]
        around = blocks.get(place.file, ())
        for first, last in _enclosing(around, place):
            inside = [line for line in lines if first <= line <= last]
            inside = [line for line in inside if lines[line] in DECIDING] or inside
            before, after = [x for x in inside if x < place.line], [x for x in inside if x > place.line]
            if before and (not after or _stands_in(max(before), (first, last), around)):
                return lines[max(before)]
            if after:
                return lines[min(after)]
    return 0


def _stands_in(line: int, block: tuple[int, int], blocks: Sequence[tuple[int, int]]) -> bool:
    """In this block itself, in none within it."""
    return not any(block[0] <= first <= line <= last <= block[1] and (first, last) != block for first, last in blocks)


def _enclosing(blocks: Sequence[tuple[int, int]], place: m.Place) -> Iterator[tuple[int, int]]:
    """The blocks around a line, innermost first, and last the whole function."""
    around = [(first, last) for first, last in blocks if first <= place.line <= last and first >= place.first_line]
    yield from sorted(around, key=lambda block: block[1] - block[0])
    yield place.first_line, 1 << 30
