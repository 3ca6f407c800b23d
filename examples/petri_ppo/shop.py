"""Production scheduling on the Petri net: a batch of job shops, each with its own random orders.

What lives here: orders (which machine, how long), and the batch in two versions. `PlainShops` reads every observation off the
tokens of the net; `TurboShops` keeps preallocated arrays over all shops and changes what a decision changed. NumPy only: no
tensors, no learning.

Invariant: both fill the same arrays with the same numbers, bit for bit (`tests/test_petri_net.py`).

A decision is a row: start the next operation of that job, or (the last row) wait for the next operation to finish. The reward
is minus the time that passed, in units of the shortest schedule one can hope for, so that an episode's return is
-(makespan / lower bound): -1 cannot be beaten.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from petri import WAIT, PlainNet, TimedNet, TurboNet, job_shop

# What the agent sees of a row, each in about [0, 1].
FEATURES = ("may_choose", "is_wait", "done", "duration", "time_left", "work_after", "machine_load", "machine_time_left")
_MAY, _IS_WAIT, _DONE, _DURATION, _LEFT, _AFTER, _LOAD, _MACHINE_LEFT = range(len(FEATURES))


@dataclass(frozen=True, slots=True)
class Size:
    """The dimensions of a shop."""

    jobs: int = 6
    machines: int = 6  # every job visits each once
    longest: int = 20  # durations are 1 to this


@dataclass(frozen=True, slots=True)
class Orders:
    machines: list[list[int]]  # by job and operation
    durations: list[list[int]]

    @property
    def lower_bound(self) -> int:
        """No schedule is shorter than the busiest machine or the longest job."""
        loads = [0] * len(self.machines[0])
        for places, times in zip(self.machines, self.durations, strict=True):
            for machine, duration in zip(places, times, strict=True):
                loads[machine] += duration
        return max(*loads, *(sum(times) for times in self.durations))


def draw_orders(source: random.Random, size: Size) -> Orders:
    machines = [source.sample(range(size.machines), size.machines) for _ in range(size.jobs)]
    durations = [[source.randint(1, size.longest) for _ in range(size.machines)] for _ in range(size.jobs)]
    return Orders(machines, durations)


class Shops:
    """What both versions share: the arrays they fill, the random sources, and finished episodes."""

    def __init__(self, count: int, size: Size, seed: int) -> None:
        self.size = size
        self.sources = [random.Random(seed * 1_000_003 + i) for i in range(count)]
        self.orders = [draw_orders(source, size) for source in self.sources]
        self.bounds = [orders.lower_bound for orders in self.orders]
        rows = size.jobs + 1
        self.observation = np.zeros((count, rows, len(FEATURES)), np.float32)
        self.observation[:, -1, _IS_WAIT] = 1
        self.mask = np.zeros((count, rows), np.bool_)
        self.reward = np.zeros(count, np.float32)
        self.done = np.zeros(count, np.bool_)
        self._every = np.arange(count)
        self.finished: list[float] = []  # makespan / lower bound of episodes that ended; whoever reads empties it

    def __len__(self) -> int:
        return len(self.sources)

    def reset(self, which: Sequence[int]) -> None:
        """New orders for these shops."""
        for i in which:
            self.orders[i] = draw_orders(self.sources[i], self.size)
            self.bounds[i] = self.orders[i].lower_bound
            self._open(i)
            self.done[i] = False
        self._observe()

    def step(self, rows: Sequence[int]) -> None:
        """One decision in every shop that is not done."""
        if not (self.mask[self._every, rows] | self.done).all():
            raise ValueError("a row was chosen that its shop's mask does not allow")
        wait = self.size.jobs
        for i, row in enumerate(rows):
            if self.done[i]:
                self.reward[i] = 0
                continue
            passed = self._decide(i, WAIT if row == wait else row)
            self.reward[i] = -passed / self.bounds[i]
            if self._is_over(i):
                self.done[i] = True
                self.finished.append(self.clock_of(i) / self.bounds[i])
        self._observe()

    def clock_of(self, shop: int) -> int:
        raise NotImplementedError

    def _open(self, shop: int) -> None:
        raise NotImplementedError

    def _decide(self, shop: int, job: int) -> int:
        raise NotImplementedError

    def _is_over(self, shop: int) -> bool:
        raise NotImplementedError

    def _observe(self) -> None:
        raise NotImplementedError


class PlainShops(Shops):
    """Nothing is remembered: where a job stands is read off the net's tokens."""

    def __init__(self, count: int, size: Size, seed: int) -> None:
        super().__init__(count, size, seed)
        self.nets = [PlainNet(_net_of(orders)) for orders in self.orders]
        self._observe()

    def clock_of(self, shop: int) -> int:
        return self.nets[shop].clock

    def _open(self, shop: int) -> None:
        self.nets[shop] = PlainNet(_net_of(self.orders[shop]))

    def _decide(self, shop: int, job: int) -> int:
        if job == WAIT:
            return self.nets[shop].step(WAIT)
        first = job * self.size.machines
        return self.nets[shop].step(next(t for t in self.nets[shop].enabled() if first <= t < first + self.size.machines))

    def _is_over(self, shop: int) -> bool:
        return all(self._standing(shop, job)[0] == self.size.machines for job in range(self.size.jobs))

    def _standing(self, shop: int, job: int) -> tuple[int, int]:
        """The operation a job waits for or is in, and when that ends (0: it waits)."""
        net, operations = self.nets[shop], self.size.machines
        for k in range(operations + 1):
            if net.ready[job * (operations + 1) + k]:
                return k, 0
        first = self.size.jobs * (operations + 1) + job * operations
        return next((place - first, when) for when, place in net.ripening if first <= place < first + operations)

    def _observe(self) -> None:
        for i in range(len(self)):
            self._observe_shop(i)

    def _observe_shop(self, i: int) -> None:
        size, net, orders = self.size, self.nets[i], self.orders[i]
        standings = [self._standing(i, job) for job in range(size.jobs)]
        loads, ends = [0] * size.machines, [0] * size.machines
        for job, (at, end) in enumerate(standings):
            for k in range(at + (end > 0), size.machines):
                loads[orders.machines[job][k]] += orders.durations[job][k]
            if end:
                ends[orders.machines[job][at]] = end
        startable = {t // size.machines for t in net.enabled()}
        for job, (at, end) in enumerate(standings):
            row = self.observation[i, job]
            self.mask[i, job] = job in startable
            row[_MAY] = job in startable
            row[_DONE] = at / size.machines
            over = at == size.machines
            row[_DURATION] = 0 if over else orders.durations[job][at] / size.longest
            row[_LEFT] = (end - net.clock) / size.longest if end else 0
            row[_AFTER] = sum(orders.durations[job][at + 1 :]) / (size.longest * size.machines)
            row[_LOAD] = 0 if over else loads[orders.machines[job][at]] / (size.longest * size.jobs)
            busy_until = 0 if over else ends[orders.machines[job][at]]
            row[_MACHINE_LEFT] = (busy_until - net.clock) / size.longest if busy_until else 0
        self.mask[i, -1] = net.can_wait()
        row = self.observation[i, -1]
        row[_MAY] = net.can_wait()
        row[_LEFT] = (min(when for when, _ in net.ripening) - net.clock) / size.longest if net.ripening else 0


class TurboShops(Shops):
    """Arrays over all shops, changed by what happens; the observation is a dozen array operations for the whole batch."""

    def __init__(self, count: int, size: Size, seed: int) -> None:
        super().__init__(count, size, seed)
        jobs, operations = size.jobs, size.machines
        self._startable = np.zeros((count, jobs * operations), np.bool_)  # the nets write here
        self._clocks = np.zeros((count, 1), np.int64)
        self._at = np.zeros((count, jobs), np.int64)  # the operation a job waits for or is in
        self._ends = np.zeros((count, jobs), np.int64)  # when the running operation ends; 0: none runs
        # By job and operation, one more for "done", which needs a machine that is always free and never loaded.
        self._machines = np.full((count, jobs, operations + 1), operations, np.int64)
        self._durations = np.zeros((count, jobs, operations + 1), np.int64)
        self._after = np.zeros((count, jobs, operations + 1), np.int64)
        self._loads = np.zeros((count, operations + 1), np.int64)  # not yet started
        self._machine_ends = np.zeros((count, operations + 1), np.int64)
        self._shop = self._every[:, None]
        self._job = np.arange(jobs)[None, :]
        self._running: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # (when it ends, job)
        self._nets: list[TurboNet] = []
        for i in range(count):
            self._nets.append(self._new_net(i))
        self._observe()

    def clock_of(self, shop: int) -> int:
        return self._nets[shop].clock

    def _open(self, shop: int) -> None:
        self._nets[shop] = self._new_net(shop)

    def _new_net(self, i: int) -> TurboNet:
        orders, operations = self.orders[i], self.size.machines
        self._machines[i, :, :operations] = orders.machines
        self._durations[i, :, :operations] = orders.durations
        durations = self._durations[i, :, :operations]
        self._after[i, :, :operations] = durations[:, ::-1].cumsum(1)[:, ::-1] - durations
        self._loads[i] = np.bincount(self._machines[i, :, :operations].ravel(), durations.ravel(), operations + 1)
        for array in (self._clocks, self._at, self._ends, self._machine_ends):
            array[i] = 0
        self._running[i] = []
        return TurboNet(_net_of(orders), memoryview(self._startable[i]))

    def _decide(self, shop: int, job: int) -> int:
        net = self._nets[shop]
        if job == WAIT:
            passed = net.step(WAIT)
        else:
            at = int(self._at[shop, job])
            orders = self.orders[shop]
            machine, duration = orders.machines[job][at], orders.durations[job][at]
            end = net.clock + duration
            self._ends[shop, job] = end
            self._machine_ends[shop, machine] = end
            self._loads[shop, machine] -= duration
            self._running[shop].append((end, job))
            passed = net.step(job * self.size.machines + at)
        if passed:
            self._finish(shop, net.clock)
        return passed

    def _finish(self, shop: int, clock: int) -> None:
        """Operations that ended while the clock moved."""
        self._clocks[shop] = clock
        still = []
        for end, job in self._running[shop]:
            if end > clock:
                still.append((end, job))
                continue
            self._machine_ends[shop, self.orders[shop].machines[job][self._at[shop, job]]] = 0
            self._at[shop, job] += 1
            self._ends[shop, job] = 0
        self._running[shop] = still

    def _is_over(self, shop: int) -> bool:
        net = self._nets[shop]
        return not net.choices and not net.ripening

    def _observe(self) -> None:
        size, at, clocks = self.size, self._at, self._clocks
        jobs = self.observation[:, :-1]
        self.mask[:, :-1] = self._startable.reshape(len(self), size.jobs, size.machines).any(2)
        self.mask[:, -1] = [bool(running) for running in self._running]
        machine = self._machines[self._shop, self._job, at]
        busy_until = self._machine_ends[self._shop, machine]
        jobs[..., _DONE] = at / size.machines
        jobs[..., _DURATION] = self._durations[self._shop, self._job, at] / size.longest
        jobs[..., _LEFT] = np.maximum(self._ends - clocks, 0) / size.longest
        jobs[..., _AFTER] = self._after[self._shop, self._job, at] / (size.longest * size.machines)
        jobs[..., _LOAD] = self._loads[self._shop, machine] / (size.longest * size.jobs)
        jobs[..., _MACHINE_LEFT] = np.maximum(busy_until - clocks, 0) / size.longest
        self.observation[..., _MAY] = self.mask
        left = [min(running)[0] - net.clock if running else 0 for running, net in zip(self._running, self._nets, strict=True)]
        self.observation[:, -1, _LEFT] = np.array(left) / size.longest


def make_shops(turbo: bool, count: int, size: Size, seed: int) -> Shops:
    return (TurboShops if turbo else PlainShops)(count, size, seed)


def _net_of(orders: Orders) -> TimedNet:
    return job_shop(orders.machines, orders.durations, [1] * len(orders.machines[0]))
