"""Phases: how much of the training loop was collecting, learning, evaluating, logging, saving, waiting, and in which calls.

What lives here: the main track's own times added up by phase and part, measured and inferred apart. Invariant: the parts add
up to their phase; the phases, what belongs to none and our own cost add up to the loop, in whole nanoseconds.

What was measured and what is inferred is decided in model/ledger.py. The phase of what is inferred comes from the next event,
or, where that is not the phase of the event before, from the lines the sampler saw there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..model import phase as ph
from ..model import shard as m
from ..model.ledger import INFERRED, PROFILER, UNATTRIBUTED, Branch, Ledger, accounts_of, find_containers
from ..model.numbers import Numbers, take_numbers
from ..model.sheet import split_exactly
from .lines import Blocks, Stack, guess_phase, phases_of_lines

FOR_OTHERS = frozenset({"(waiting: lock)", "(waiting: queue)", "(waiting: pipe)", "(waiting: select)"})
BETWEEN = "between calls"  # what no hooked call measured
FOR_WORKERS = "(waiting for workers)"
_LEAST_SAMPLES = 20  # to divide a stretch by


@dataclass(frozen=True, slots=True)
class Part:
    """What a phase consists of: a call, what lies between calls, or waiting for those who work."""

    name: str
    direct_ns: int = 0
    inferred_ns: int = 0
    waiting_ns: int = 0  # of the direct time

    @property
    def total_ns(self) -> int:
        return self.direct_ns + self.inferred_ns


@dataclass(frozen=True, slots=True)
class Phase:
    code: int  # see model/phase.py; 0: none
    parts: tuple[Part, ...]  # largest first

    @property
    def name(self) -> str:
        return ph.phase_name(self.code)

    @property
    def direct_ns(self) -> int:
        return sum(part.direct_ns for part in self.parts)

    @property
    def inferred_ns(self) -> int:
        return sum(part.inferred_ns for part in self.parts)

    @property
    def waiting_ns(self) -> int:
        """Of the direct time."""
        return sum(part.waiting_ns for part in self.parts)

    @property
    def total_ns(self) -> int:
        return self.direct_ns + self.inferred_ns


@dataclass(frozen=True, slots=True)
class Phases:
    numbers: Numbers  # of the same track; the phases, what is nobody's and our own cost add up to its base
    phases: tuple[Phase, ...]  # largest first

    @property
    def loop_ns(self) -> int:
        return self.numbers.base_ns

    @property
    def startup_ns(self) -> int:
        """And what came after the last event."""
        return self.numbers.startup_ns

    @property
    def profiler_ns(self) -> int:
        return self.numbers.profiler_ns

    @property
    def unattributed_ns(self) -> int:
        return self.numbers.unattributed_ns

    @property
    def known(self) -> bool:
        return self.numbers.known

    def share(self, code: int) -> float:
        return sum(p.total_ns for p in self.phases if p.code == code) / self.loop_ns if self.loop_ns else 0.0


def find_phases(ledger: Ledger, stacks: Sequence[Stack], blocks: Blocks, shard: int = 0) -> Phases:
    """The phases of a process's main thread."""
    accounts, parts = accounts_of(ledger.tree), _parts_of(ledger.tree)
    track = next((b.track for b in ledger.balances if b.shard == shard), 0)
    direct: defaultdict[int, Counter[str]] = defaultdict(Counter)  # by phase and part
    waiting: defaultdict[int, Counter[str]] = defaultdict(Counter)
    inferred: Counter[int] = Counter()
    mixed: list[tuple[int, int, int]] = []  # phase before, phase after, ns
    pauses = handed = 0
    for own_shard, own_track, at, ns in ledger.self_by_track:
        branch = ledger.tree[at]
        if (own_shard, own_track) != (shard, track) or not ns or branch.phase == ph.STARTUP:
            continue
        if accounts[at] in (PROFILER, UNATTRIBUTED):
            continue
        if accounts[at] == INFERRED:
            if branch.after:
                mixed.append((branch.after, branch.phase, ns))
            else:
                inferred[branch.phase] += ns
        elif branch.kind == m.GARBAGE and not branch.phase:
            pauses += ns
        elif branch.kind == m.WAIT and not branch.phase and branch.name in FOR_OTHERS:
            handed += ns
        else:
            waits = branch.kind == m.WAIT
            code = branch.phase or (ph.WAIT if waits else ph.NONE)
            name = ledger.tree[parts[at]].name.removeprefix(f"{ph.phase_name(code)}/") or "(no name)"
            direct[code][name] += ns
            waiting[code][name] += ns if waits else 0
    own_stacks = [x for x in stacks if (x.shard, x.track) == (shard, track)]
    inferred.update(_divide(mixed, inferred, ledger, own_stacks, blocks))
    for code, ns in _wait_for(handed, ledger, shard, track).items():
        direct[code][FOR_WORKERS] += ns
        waiting[code][FOR_WORKERS] += ns
    # a collection of garbage between two events is as much of one phase as what lies there
    codes = sorted(code for code in inferred if inferred[code]) or [ph.NONE]
    for code, ns in zip(codes, split_exactly(pauses, [inferred[code] or 1 for code in codes]), strict=True):
        direct[code][m.GC_PAUSE] += ns
    phases = []
    for code in {*direct, *inferred}:
        rows = [Part(name, ns, 0, waiting[code][name]) for name, ns in direct[code].items() if ns]
        rows += [Part(BETWEEN, 0, inferred[code])] if inferred[code] else []
        if rows:
            phases.append(Phase(code, tuple(sorted(rows, key=lambda part: -part.total_ns))))
    return Phases(take_numbers(ledger, shard), tuple(sorted(phases, key=lambda p: -p.total_ns)))


def _parts_of(tree: Sequence[Branch]) -> list[int]:
    """By branch: the one whose name its time goes by, the outermost call of its phase. A container is none, its parts are."""
    containers = find_containers([(b.parent, b.kind, b.owns) for b in tree])
    parts: list[int] = []
    for i, branch in enumerate(tree):
        above = tree[branch.parent] if branch.parent >= 0 else None
        inside = above is not None and above.kind in (m.USER, m.OVERFLOW) and above.phase == branch.phase
        parts.append(parts[branch.parent] if inside and branch.phase and branch.parent not in containers else i)
    return parts


def _wait_for(handed: int, ledger: Ledger, shard: int, track: int) -> Counter[int]:
    """Waiting for work that was handed over is of the phase of that work; without any, it is just waiting."""
    below: set[int] = set()
    work: Counter[int] = Counter()
    for at, branch in enumerate(ledger.tree):
        if branch.kind == m.HANDOFF or branch.parent in below:
            below.add(at)
    for own_shard, own_track, at, ns in ledger.self_by_track:
        if at in below and (own_shard, own_track) != (shard, track):
            work[ledger.tree[at].phase] += ns
    del work[0]
    codes = sorted(work)
    total = sum(work.values())
    claim = min(handed, total)
    found = Counter(dict(zip(codes, split_exactly(claim, [work[c] for c in codes]), strict=True)))
    found[ph.WAIT] += handed - claim
    return found


def _divide(
    mixed: list[tuple[int, int, int]], alike: Counter[int], ledger: Ledger, stacks: Sequence[Stack], blocks: Blocks
) -> Counter[int]:
    """What lies between events of two phases, by the lines it was spent at; by the next event where too few were seen."""
    total = sum(ns for _, _, ns in mixed)
    plain: Counter[int] = Counter()
    for _, after, ns in mixed:
        plain[after] += ns
    if not total:
        return plain
    known = phases_of_lines(stacks, ledger)
    seen: Counter[int] = Counter()
    for stack in stacks:
        if not stack.early and ledger.tree[stack.branch].kind in (m.ROOT, m.INFERRED):
            seen[guess_phase(stack.places, known, blocks)] += stack.count
    del seen[0]
    if sum(seen.values()) < _LEAST_SAMPLES:
        return plain
    # The samples are of all stretches; those between events of one phase are known exactly, so the rest is what is divided.
    whole = total + sum(alike[code] for code in {c for pair in mixed for c in pair[:2]})
    weights = {code: max(0, round(whole * count / sum(seen.values())) - alike[code]) for code, count in seen.items()}
    if not any(weights.values()):
        return plain
    codes = sorted(weights)
    return Counter(dict(zip(codes, split_exactly(total, [weights[c] for c in codes]), strict=True)))
