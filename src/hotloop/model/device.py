"""What a session knows of devices: the numbers of each process that used one, and the operators of a deep window.

Invariant: plain and immutable; a label is named by the shard and path of its span, as the recorder knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TO_DEVICE, TO_HOST, SYNC = "host to device", "device to host", "synchronise"
ON_HOST = "on the host"  # a tensor of the CPU is taken apart; counted in windows, without times


@dataclass(frozen=True, slots=True)
class DeviceLabel:
    shard: int
    path: int  # 0: between the spans that are marked, -1: before the first
    spans: int
    host_ns: int  # queueing, without what it was blocked
    least_ns: int  # the device on its work, at least
    most_ns: int  # ... at most
    blocked_ns: int  # the host blocked in it
    copy_ns: int  # of that, its own copy
    waited_ns: int  # the host blocked anywhere for its work


@dataclass(frozen=True, slots=True)
class DevicePair:
    """Blocked in one span for the work of another."""

    inside: tuple[int, int]
    owner: tuple[int, int]
    ns: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """One line of the user's code that copies between host and device, or waits for a device."""

    file: str
    line: int
    function: str
    call: str  # item, cpu, to, synchronize, …
    direction: str
    count: int
    bytes: int
    pinned: int  # of the count, from or to pinned memory
    blocking: int  # of the count, those the host waited for
    ns: int  # the host in it


class MemoryPoint(NamedTuple):
    at_ns: int  # since the device was first used
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    pid: int
    name: str  # of the device; empty: none was used, and only reads of tensors are known
    lifetime_ns: int  # since the device was first used
    measured_ns: int  # of that, in windows with marks
    covered_ns: int  # what those stand for
    busy_ns: int  # of what they stand for, the device at least
    cost_ns: int  # our own
    marks: int
    dropped: int
    unresolved: int
    broken: str
    labels: tuple[DeviceLabel, ...] = ()
    pairs: tuple[DevicePair, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    memory: tuple[MemoryPoint, ...] = ()
    peaks: tuple[tuple[int, int, int], ...] = ()  # shard, path, bytes: the true peak in spans with track_memory
    peak_allocated: int = 0
    peak_reserved: int = 0


CPU_OP, KERNEL, COPY, SPAN, RUNTIME = "op", "kernel", "copy", "span", "runtime"


class TraceRow(NamedTuple):
    """One entry of a deep window's trace."""

    kind: str
    name: str
    tid: int
    start_ns: int
    dur_ns: int
    correlation: int  # of a kernel and the call that launched it; 0: none


@dataclass(frozen=True, slots=True)
class Operator:
    kind: str  # op, kernel, copy
    name: str
    label: str  # of our span it was called in; empty: none
    calls: int
    ns: int  # of its own, without the operators it calls


@dataclass(frozen=True, slots=True)
class Operators:
    """A deep window, folded under our labels."""

    window_ns: int
    iterations: int
    kernel_busy_ns: int  # with at least one kernel or copy on a device
    rows: tuple[Operator, ...]  # largest first

    def total_ns(self, *kinds: str) -> int:
        return sum(row.ns for row in self.rows if row.kind in kinds)

    def folded(self, *kinds: str) -> float:
        """Of these, the share that lies under a label of ours."""
        whole = self.total_ns(*kinds)
        return sum(row.ns for row in self.rows if row.kind in kinds and row.label) / whole if whole else 1.0
