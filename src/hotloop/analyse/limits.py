"""Limit and headroom: how far the loop is from what this machine could do, phase by phase.

What lives here: the time of each phase by mechanism, and what would be left of it without what the findings name. Two numbers:
with learning unchanged, and with more samples per call, which may change what is learnt. Invariants: the mechanisms of a phase
add up to it, and with what is nobody's and ours to the loop, in whole nanoseconds; no limit is above the time it is a limit of.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model import shard as m
from ..model.finding import ALWAYS_NOTES, WARNING_GAIN, Finding
from ..model.mechanism import GARBAGE, INTERPRETING, MECHANISMS, WAITING
from ..model.phase import LEARN, phase_name
from ..model.sheet import split_exactly
from .findings.axes import with_minibatch
from .findings.evidence import Evidence, Slice
from .findings.rule import MOST_GAIN

if TYPE_CHECKING:
    from .diagnosis import Diagnosis

TIMES = 4  # what a minibatch is thought to grow by
UNATTRIBUTED = -1
MUCH_WAITING = 0.25  # of the loop: a third more could be open beyond what a limit says
NEAR = 1.15  # a loop within this of its limit is healthy


@dataclass(frozen=True, slots=True)
class Claim:
    """A finding, and the slices of the loop whose time its fix makes shorter."""

    finding: Finding
    slices: Sequence[Slice] = ()

    @property
    def saved(self) -> float:
        """Of the loop, by its prediction; notes that predict nothing save nothing."""
        return 0.0 if self.finding.cause in ALWAYS_NOTES else max(0.0, 1 - 1 / self.finding.gain.mid)


@dataclass(frozen=True, slots=True)
class Limit:
    """A phase, what its time is spent on, and what would be left of it."""

    code: int
    ns: int
    mechanisms: dict[str, int]  # nanoseconds; they add up to it
    limit_ns: int  # with learning unchanged
    batched_ns: int  # with more samples per call too

    @property
    def name(self) -> str:
        return phase_name(self.code)

    @property
    def headroom(self) -> float:
        return min(MOST_GAIN, self.ns / max(1, self.limit_ns))


@dataclass(frozen=True, slots=True)
class Limits:
    phases: tuple[Limit, ...]  # as the report lists them
    headroom: float  # of the loop, with learning unchanged
    batched: float  # with more samples per call too, never less
    minibatch: float  # of that, what minibatches TIMES as large would gain alone; 1 where it is not known
    mechanisms: dict[str, int]  # of the loop without our own cost


def find_limits(diagnosis: Diagnosis, claims: Sequence[Claim]) -> Limits:
    e = diagnosis.evidence
    plain: defaultdict[int, float] = defaultdict(float)  # by phase, nanoseconds that could be gone
    more: defaultdict[int, float] = defaultdict(float)
    for claim in claims:
        gone = claim.saved * e.loop_ns
        whole = sum(x.ns for x in claim.slices)
        bucket = more if claim.finding.changes_learning else plain
        for piece in claim.slices:
            bucket[piece.phase] += min(1.0, gone / whole) * piece.ns if whole else 0.0
        bucket[UNATTRIBUTED] += max(0.0, gone - whole)  # what it drags along, wherever that is
    grown = _with_larger_minibatches(e)
    spent = split_mechanisms(diagnosis)
    rows = []
    for phase in diagnosis.phases.phases:
        limit = max(0.0, phase.total_ns - plain[phase.code])
        batched = max(0.0, limit - more[phase.code] - (grown if phase.code == LEARN else 0.0))
        rows.append(Limit(phase.code, phase.total_ns, spent[phase.code], round(limit), round(batched)))
    saved = sum(plain.values()) / e.loop_ns
    batched_saved = saved + (sum(more.values()) + grown) / e.loop_ns
    total: Counter[str] = Counter()
    for found in spent.values():
        total.update(found)
    headroom, batched_headroom = (1 / max(0.01, 1 - min(0.99, x)) for x in (saved, batched_saved))
    return Limits(
        tuple(rows), headroom, max(headroom, batched_headroom), 1 / max(0.01, 1 - grown / e.loop_ns),
        {name: total[name] for name in MECHANISMS if total[name]},
    )  # fmt: skip


def _with_larger_minibatches(e: Evidence) -> float:
    """Nanoseconds gone with minibatches TIMES as large and as many fewer updates, by the measured curve; 0 without one."""
    curve = e.curve(LEARN)
    return max(0.0, with_minibatch(e, TIMES).saved_ns(e.left)) if curve is not None and len(curve.points) > 1 else 0.0


def split_mechanisms(diagnosis: Diagnosis) -> dict[int, dict[str, int]]:
    """By phase, what its time was spent on; 0: a call without a phase, UNATTRIBUTED: what is nobody's."""
    weights: defaultdict[int, Counter[str]] = defaultdict(Counter)
    tree = diagnosis.ledger.tree
    for piece in diagnosis.evidence.slices:
        if piece.kind != m.GARBAGE or tree[piece.branch].phase:  # pauses between two calls are parts of their own
            for name, share in piece.mechanisms:
                weights[piece.phase][name] += round(piece.ns * share)
    totals = {phase.code: phase.total_ns for phase in diagnosis.phases.phases}
    totals[UNATTRIBUTED] = diagnosis.phases.unattributed_ns
    weights[UNATTRIBUTED] = weights[0]  # the samples do not tell the two apart
    waiting = {phase.code: phase.waiting_ns for phase in diagnosis.phases.phases}
    # pauses between two calls have no phase of their own: the phases know what they have of them
    garbage = {p.code: sum(x.total_ns for x in p.parts if x.name == m.GC_PAUSE) for p in diagnosis.phases.phases}
    return {code: _split(ns, weights[code], waiting.get(code, 0), garbage.get(code, 0)) for code, ns in totals.items() if ns}


def _split(ns: int, weights: Mapping[str, int], waiting: int, garbage: int) -> dict[str, int]:
    if garbage:
        rest = _split(ns - garbage, weights, waiting, 0) if ns > garbage else {}
        rest[GARBAGE] = rest.get(GARBAGE, 0) + garbage
        return {name: rest[name] for name in MECHANISMS if rest.get(name)}
    names = [name for name in MECHANISMS if weights.get(name)]
    if not names:  # nothing was sampled there: a known wait waits, the rest is Python's
        return {name: part for name, part in ((INTERPRETING, ns - waiting), (WAITING, waiting)) if part}
    return dict(zip(names, split_exactly(ns, [weights[name] for name in names]), strict=True))


def verdict(limits: Limits, findings: Sequence[Finding]) -> tuple[str, Finding | None]:
    """One sentence with a number, and the finding it speaks of."""
    best = next((f for f in findings if f.gain.mid >= NEAR and f.cause not in ALWAYS_NOTES), None)
    if best is None:
        near = f"within {limits.headroom:.2f} × of what this machine can do"
        waiting = limits.mechanisms.get(WAITING, 0) / max(1, sum(limits.mechanisms.values()))
        if waiting >= MUCH_WAITING:
            near += f", not counting the {100 * waiting:.0f} % of the loop in which it waits"
        if limits.batched >= WARNING_GAIN:
            near += f"; {limits.batched:.1f} × with more samples per call, which may change what is learnt"
        return near, None
    g = best.gain
    said = f"about {g.mid:.1f} × is open ({g.low:.1f} to {g.high:.1f}): {best.action}"
    return said + (", which may change what is learnt" if best.changes_learning else ""), best
