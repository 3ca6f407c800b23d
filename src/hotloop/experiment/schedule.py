"""The order of the runs: all arms take turns, and every second round is the mirror of the one before.

For two arms that is ABBA or BAAB, the first letter drawn anew for every block of two rounds, so that neither a drift of the
machine nor the memory of the run before favours an arm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """One run to make."""

    number: int  # from 1, in the order of running
    round: int  # from 1; the runs of a round are compared with one another, and get the same seed
    arm: str


def make_schedule(arms: Sequence[str], rounds: int, seed: int) -> list[Slot]:
    """The same seed gives the same order.

    >>> "".join(slot.arm for slot in make_schedule("AB", 4, seed=1))
    'BAABBAAB'
    """
    source = random.Random(seed)  # noqa: S311  the order of runs is no secret
    slots: list[Slot] = []
    order = list(arms)
    for number in range(1, rounds + 1):
        if number % 2:
            source.shuffle(order)
        else:
            order.reverse()
        slots += [Slot(len(slots) + i, number, arm) for i, arm in enumerate(order, 1)]
    return slots
