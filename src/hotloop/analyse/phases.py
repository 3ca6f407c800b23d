"""Phases: how much of the training loop was collecting, learning, evaluating, logging, saving, waiting.

What lives here: the main track's own times added up by phase, measured and inferred apart. Invariant: the phases, what belongs
to none and our own cost add up to the loop, in whole nanoseconds.

What was measured and what is inferred is decided in model/ledger.py. The phase of what is inferred comes from the next event,
or, where that is not the phase of the event before, from the lines the sampler saw there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..model import phase as ph
from ..model import shard as m
from ..model.ledger import INFERRED, PROFILER, UNATTRIBUTED, Ledger, accounts_of
from ..model.numbers import Numbers, take_numbers
from ..model.sheet import split_exactly
from .lines import Blocks, Look, guess_phase, phases_of_lines

FOR_OTHERS = frozenset({"(waiting: lock)", "(waiting: queue)", "(waiting: pipe)", "(waiting: select)"})
_LEAST_SAMPLES = 20  # to divide a stretch by


@dataclass(frozen=True, slots=True)
class Phase:
    code: int  # see model/phase.py; 0: none
    direct_ns: int
    inferred_ns: int
    waiting_ns: int  # of the direct time
    handed_ns: int = 0  # of the waiting: for work that was handed to others

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


def find_phases(ledger: Ledger, looks: Sequence[Look], blocks: Blocks, shard: int = 0) -> Phases:
    """The phases of a process's main thread."""
    accounts = accounts_of(ledger.tree)
    track = next((b.track for b in ledger.balances if b.shard == shard), 0)
    direct: Counter[int] = Counter()
    inferred: Counter[int] = Counter()
    waiting: Counter[int] = Counter()
    mixed: list[tuple[int, int, int]] = []  # phase before, phase after, ns
    pauses = handed = 0
    for own_shard, own_track, at, ns in ledger.self_by_track:
        if (own_shard, own_track) != (shard, track) or not ns:
            continue
        branch = ledger.tree[at]
        if branch.phase == ph.STARTUP or accounts[at] in (PROFILER, UNATTRIBUTED):
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
        elif branch.kind == m.WAIT:
            code = branch.phase or ph.WAIT
            direct[code] += ns
            waiting[code] += ns
        else:
            direct[branch.phase] += ns
    for code, ns in _divide(
        mixed, inferred, ledger, [x for x in looks if (x.shard, x.track) == (shard, track)], blocks
    ).items():
        inferred[code] += ns
    for_others = _wait_for(handed, ledger, shard, track)
    for code, ns in for_others.items():
        direct[code] += ns
        waiting[code] += ns
    # a collection of garbage between two events is as much of one phase as what lies there
    codes_of = sorted(code for code in inferred if inferred[code])
    for code, ns in zip(codes_of, split_exactly(pauses, [inferred[code] for code in codes_of]), strict=True):
        direct[code] += ns
    if not codes_of and pauses:
        direct[ph.NONE] += pauses
    codes = {code for code in (*direct, *inferred) if direct[code] or inferred[code]}
    phases = [Phase(code, direct[code], inferred[code], waiting[code], for_others[code]) for code in codes]
    return Phases(take_numbers(ledger, shard), tuple(sorted(phases, key=lambda p: -p.total_ns)))


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
    mixed: list[tuple[int, int, int]], alike: Counter[int], ledger: Ledger, looks: Sequence[Look], blocks: Blocks
) -> Counter[int]:
    """What lies between events of two phases, by the lines it was spent at; by the next event where too few were seen."""
    total = sum(ns for _, _, ns in mixed)
    plain: Counter[int] = Counter()
    for _, after, ns in mixed:
        plain[after] += ns
    if not total:
        return plain
    known = phases_of_lines(looks, ledger)
    seen: Counter[int] = Counter()
    for look in looks:
        if not look.early and ledger.tree[look.branch].kind in (m.ROOT, m.INFERRED):
            seen[guess_phase(look.places, known, blocks)] += look.count
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
