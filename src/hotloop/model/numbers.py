"""What the numbers mean: one definition each, used by every view.

What lives here: the numbers a reader sees first, from the ledger of a session.
    loop          from the first env step or update to the last, without start-up and shut-down; in a session recorded with
                  start(), from the first span to the last env step, update or step(); without any of these, all of it
    base          what shares are of: the loop where hooks know it, else the recorded time of the thread
    measured      directly: in a span, at work or in a known wait
    inferred      between two calls whose phase is known, or in a phase outside its parts
    unattributed  nobody's
    profiler      our own cost            measured + inferred + unattributed + profiler = base, in whole nanoseconds
    waiting       of the measured: in a known wait
    coverage      1 - unattributed / base
Who may touch it: anyone; pure, standard library only, so that the training process uses it too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from . import shard as m
from .ledger import INFERRED, MEASURED, UNATTRIBUTED, WAITING, Ledger, accounts_of
from .phase import STARTUP


@dataclass(frozen=True, slots=True)
class Numbers:
    """The time of the main thread of one process."""

    lifetime_ns: int  # recorded
    startup_ns: int  # before the loop and after it; 0 where no hook saw a loop
    measured_ns: int
    inferred_ns: int
    unattributed_ns: int
    profiler_ns: int
    waiting_ns: int

    @property
    def known(self) -> bool:
        """Did hooks see a training loop: an env step or update that ended the start-up?"""
        return self.startup_ns > 0

    @property
    def base_ns(self) -> int:
        return self.lifetime_ns - self.startup_ns

    @property
    def coverage(self) -> float:
        return 1 - self.unattributed_ns / self.base_ns if self.base_ns > 0 else 0.0

    @property
    def measured_share(self) -> float:
        return self.measured_ns / self.base_ns if self.base_ns > 0 else 0.0

    @property
    def inferred_share(self) -> float:
        return self.inferred_ns / self.base_ns if self.base_ns > 0 else 0.0


def take_numbers(ledger: Ledger, shard: int = 0) -> Numbers:
    """The numbers of a process's main thread."""
    balance = next((b for b in ledger.balances if b.shard == shard), None)
    if balance is None:
        return Numbers(0, 0, 0, 0, 0, 0, 0)
    accounts = accounts_of(ledger.tree)
    held: Counter[str] = Counter()
    startup = 0
    for own_shard, own_track, at, ns in ledger.self_by_track:
        if (own_shard, own_track) != (shard, balance.track):
            continue
        if ledger.tree[at].phase == STARTUP:
            startup += ns
        else:
            held[accounts[at]] += ns
    return Numbers(
        lifetime_ns=balance.lifetime_ns, startup_ns=startup, measured_ns=held[MEASURED] + held[WAITING],
        inferred_ns=held[INFERRED], unattributed_ns=held[UNATTRIBUTED], profiler_ns=balance.profiler_ns,
        waiting_ns=held[WAITING],
    )  # fmt: skip


def measure_loop(shard: m.Shard, numbers: Numbers) -> int:
    """How long the training loop of a process took, in nanoseconds."""
    if numbers.known:
        return numbers.base_ns
    if not shard.last_work_ns or not shard.tracks:
        return numbers.lifetime_ns
    track = shard.tracks[0]
    begin = track.end_ns - track.lifetime_ns
    return min(max(0, shard.last_work_ns - begin), numbers.lifetime_ns) or numbers.lifetime_ns


def rate_of(work: int, ns: int) -> float | None:
    """Units of work a second; None where there is nothing to divide.

    >>> rate_of(12_288, 9_750_000_000), rate_of(0, 5)
    (1260.3076923076924, None)
    """
    return work / ns * 1e9 if work > 0 and ns > 0 else None
