"""Timed Petri nets, twice: the textbook way, and "turbo".

What lives here: the structure of a net, and two machines that play it. Places hold tokens; a transition is enabled when each of
its input places holds one that is ready; firing takes those and puts one into each output place, where it becomes ready after
the place's delay. The first `controlled` transitions are the agent's to fire; the others fire by themselves, lowest first.

Invariant: `PlainNet` and `TurboNet` give the same trajectory, token for token, for every net and every sequence of decisions
(`tests/test_petri_net.py` proves it over random nets). Times are whole numbers, so "same" means equal, not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

WAIT = -1  # the decision to fire nothing until the next token becomes ready


@dataclass(frozen=True, slots=True)
class TimedNet:
    """The structure; it never changes while a net is played."""

    inputs: tuple[tuple[int, ...], ...]  # by transition: the places it takes a token from, each at most once
    outputs: tuple[tuple[int, ...], ...]  # by transition: the places it puts a token into
    delays: tuple[int, ...]  # by place: how long an arriving token takes to become ready
    tokens: tuple[int, ...]  # by place: ready at the start
    controlled: int


class PlainNet:
    """Reads like the definition: which transitions are enabled is found by looking at all of them, every time."""

    def __init__(self, net: TimedNet) -> None:
        self.net = net
        self.clock = 0
        self.ready = list(net.tokens)
        self.ripening: list[tuple[int, int]] = []  # (when it is ready, place)
        self.settle()

    def enabled(self) -> list[int]:
        """The agent's transitions that may fire now."""
        return [t for t in range(self.net.controlled) if self.can_fire(t)]

    def can_fire(self, transition: int) -> bool:
        return all(self.ready[place] > 0 for place in self.net.inputs[transition])

    def can_wait(self) -> bool:
        return bool(self.ripening)

    def step(self, transition: int) -> int:
        """Fire one of the agent's transitions, or WAIT; then go on to the next decision. Answers the time that passed."""
        before = self.clock
        if transition == WAIT:
            self.advance()
        else:
            self.fire(transition)
            self.settle()
        while self.ripening and not self.enabled():
            self.advance()
        return self.clock - before

    def fire(self, transition: int) -> None:
        for place in self.net.inputs[transition]:
            self.ready[place] -= 1
        for place in self.net.outputs[transition]:
            if self.net.delays[place]:
                self.ripening.append((self.clock + self.net.delays[place], place))
            else:
                self.ready[place] += 1

    def settle(self) -> None:
        """Fire what fires by itself, until nothing does."""
        automatic = range(self.net.controlled, len(self.net.inputs))
        while (first := next((t for t in automatic if self.can_fire(t)), None)) is not None:
            self.fire(first)

    def advance(self) -> None:
        """Move the clock to the next token that becomes ready; tokens of the same moment become ready together."""
        self.clock = min(when for when, _ in self.ripening)
        for _, place in [token for token in self.ripening if token[0] == self.clock]:
            self.ready[place] += 1
        self.ripening = [token for token in self.ripening if token[0] > self.clock]
        self.settle()


class TurboNet:
    """The same net, incrementally: per transition the number of inputs that lack a token, corrected where a place becomes empty
    or stops being so. A step touches the neighbours of the places it changes, not the whole net."""

    def __init__(self, net: TimedNet, mask: memoryview | None = None) -> None:
        self.net = net
        self.clock = 0
        self.ready = list(net.tokens)
        self.ripening: list[tuple[int, int]] = []  # a heap
        self.mask = memoryview(bytearray(net.controlled)) if mask is None else mask  # by transition: 1 while enabled
        self.choices = 0  # how many of the agent's transitions are enabled
        self.due: list[int] = []  # automatic transitions that became enabled: a heap, may hold some that no longer are
        consumers: list[list[int]] = [[] for _ in net.delays]
        for transition, places in enumerate(net.inputs):
            for place in places:
                consumers[place].append(transition)
        self.consumers = consumers
        self.lacking = [0] * len(net.inputs)
        for transition, places in enumerate(net.inputs):
            self.lacking[transition] = sum(not self.ready[place] for place in places)
            if transition < net.controlled:
                self.mask[transition] = not self.lacking[transition]
                self.choices += not self.lacking[transition]
            elif not self.lacking[transition]:
                heappush(self.due, transition)
        self._settle()

    def enabled(self) -> list[int]:
        """The agent's transitions that may fire now."""
        return [t for t, on in enumerate(self.mask) if on]

    def can_wait(self) -> bool:
        return bool(self.ripening)

    def step(self, transition: int) -> int:
        """Fire one of the agent's transitions, or WAIT; then go on to the next decision. Answers the time that passed."""
        before = self.clock
        if transition == WAIT:
            self._advance()
        else:
            self._fire(transition)
            if self.due:
                self._settle()
        while not self.choices and self.ripening:
            self._advance()
        return self.clock - before

    def _fire(self, transition: int) -> None:
        net, ready = self.net, self.ready
        for place in net.inputs[transition]:
            ready[place] -= 1
            if not ready[place]:
                self._emptied(place)
        for place in net.outputs[transition]:
            delay = net.delays[place]
            if delay:
                heappush(self.ripening, (self.clock + delay, place))
            else:
                self._arrive(place)

    def _arrive(self, place: int) -> None:
        self.ready[place] += 1
        if self.ready[place] > 1:
            return
        lacking, controlled = self.lacking, self.net.controlled
        for transition in self.consumers[place]:
            lacking[transition] -= 1
            if not lacking[transition]:
                if transition < controlled:
                    self.mask[transition] = 1
                    self.choices += 1
                else:
                    heappush(self.due, transition)

    def _emptied(self, place: int) -> None:
        lacking, controlled = self.lacking, self.net.controlled
        for transition in self.consumers[place]:
            if not lacking[transition] and transition < controlled:
                self.mask[transition] = 0
                self.choices -= 1
            lacking[transition] += 1

    def _settle(self) -> None:
        due = self.due
        while due:
            transition = due[0]
            if self.lacking[transition]:
                heappop(due)
            else:  # it stays until it can fire no more: it may be enabled several times over
                self._fire(transition)

    def _advance(self) -> None:
        ripening = self.ripening
        self.clock = ripening[0][0]
        while ripening and ripening[0][0] == self.clock:
            self._arrive(heappop(ripening)[1])
        self._settle()


def states(net: PlainNet | TurboNet) -> tuple[int, list[int], list[tuple[int, int]], list[int]]:
    """All that a net is, in one comparable value."""
    return net.clock, list(net.ready), sorted(net.ripening), net.enabled()


def job_shop(machines: Sequence[Sequence[int]], durations: Sequence[Sequence[int]], capacities: Sequence[int]) -> TimedNet:
    """The net of a job shop: job j's k-th operation needs a unit of machine `machines[j][k]` for `durations[j][k]`.

    Start (j, k), the agent's, is transition `j * operations + k`: it takes the job's token and the machine's, and puts one into
    the operation's busy place, whose delay is the duration. Finish (j, k) follows by itself and gives both back.
    """
    jobs, operations = len(machines), len(machines[0])
    waiting = lambda j, k: j * (operations + 1) + k  # k == operations: the job is done
    busy = lambda j, k: jobs * (operations + 1) + j * operations + k
    machine = lambda i: jobs * (2 * operations + 1) + i
    every = [(j, k) for j in range(jobs) for k in range(operations)]
    starts = [((waiting(j, k), machine(machines[j][k])), (busy(j, k),)) for j, k in every]
    finishes = [((busy(j, k),), (waiting(j, k + 1), machine(machines[j][k]))) for j, k in every]
    both = starts + finishes
    first = [int(k == 0) for _ in range(jobs) for k in range(operations + 1)]
    return TimedNet(
        inputs=tuple(taken for taken, _ in both),
        outputs=tuple(given for _, given in both),
        delays=(0,) * (jobs * (operations + 1)) + tuple(durations[j][k] for j, k in every) + (0,) * len(capacities),
        tokens=(*first, *[0] * len(every), *capacities),
        controlled=len(every),
    )
