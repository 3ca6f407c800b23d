"""What devices did, from all processes that used one: by label, by line, over time.

What lives here: `summarise_devices`, session in, frozen result out. Numbers stand for the whole run: each window for the time
since the one before, each label for the calls that were counted. Idle time is told as an interval. At least: the time of
spans that queue no work (an env step), beyond what the device was still doing. At most: all the time it was not certainly
busy. What the host did meanwhile is the label of the span."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from ..model.device import DeviceLabel, DeviceProcess, Operators, Transfer
from ..model.session import SessionData
from ..model.shard import Shard

BETWEEN, EARLIER = "(between)", "(earlier work)"
# Parts that are the host's alone, unless the device shows that they queue work.
HOST_PARTS = frozenset({"env_step", "env_reset", "render", "print", "logging", "tensorboard", "save", "sample", "store"})
_FAR = 2.0  # calls by windows and calls counted
_QUEUES = 0.02  # of its time certainly on the device: it queues work after all


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One label over all processes, scaled."""

    name: str
    spans: int
    host_ns: int
    least_ns: int
    most_ns: int
    blocked_ns: int
    copy_ns: int
    waited_ns: int

    @property
    def is_host_only(self) -> bool:
        return self.name.rpartition("/")[2] in HOST_PARTS and self.least_ns <= _QUEUES * self.most_ns


@dataclass(frozen=True, slots=True)
class Blocked:
    """The host blocked in one span for the work of another, scaled."""

    inside: str
    owner: str
    ns: int


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    peak_allocated: int
    peak_reserved: int
    growth: int  # bytes allocated, last third over the middle one, where it rises throughout
    fragmentation: float  # of the reserved memory, what was not in use at the last reading
    peaks: tuple[tuple[str, int], ...]  # by label, of spans with track_memory


@dataclass(frozen=True, slots=True)
class Devices:
    names: tuple[str, ...]
    processes: int
    lifetime_ns: int  # from the first span that was marked on; all shares are of it
    measured_share: float
    cost_share: float
    busy_least: float
    idle_least: float
    idle_most: float
    idle_in: tuple[tuple[str, float], ...]  # what the host did while the device certainly had nothing to do
    rows: tuple[DeviceRow, ...]
    blocked: tuple[Blocked, ...]
    transfers: tuple[Transfer, ...]  # most time first
    memory: DeviceMemory | None
    notes: tuple[str, ...]

    @property
    def blocked_ns(self) -> int:
        return sum(row.blocked_ns for row in self.rows)


def summarise_devices(session: SessionData) -> Devices | None:
    """None where no process used a device."""
    used = tuple(process for process in session.devices if process.name)
    if not used:
        return None
    shards = {shard.id: shard for shard in session.shards}
    rows, pairs = _labels(used, shards)
    lifetime = sum(process.covered_ns or process.lifetime_ns for process in used)
    measured = sum(process.measured_ns for process in used)
    idle = {row.name: max(0, row.most_ns - row.least_ns) / lifetime for row in rows if row.is_host_only} if lifetime else {}
    busy = sum(p.busy_ns for p in used) / lifetime if lifetime else 0.0
    idle_least = min(1.0, sum(idle.values()))
    return Devices(
        names=tuple(dict.fromkeys(p.name for p in used)),
        processes=len(used),
        lifetime_ns=lifetime,
        measured_share=min(1.0, measured / lifetime) if lifetime else 0.0,
        cost_share=sum(p.cost_ns for p in used) / lifetime if lifetime else 0.0,
        busy_least=min(1.0, busy),
        idle_least=idle_least,
        idle_most=max(idle_least, 1.0 - min(1.0, busy)) if measured else 0.0,
        idle_in=tuple(sorted(((name, share) for name, share in idle.items() if share > 0), key=lambda x: -x[1])),
        rows=rows,
        blocked=pairs,
        transfers=_merge_lines(used),
        memory=_memory(used, shards),
        notes=_notes(used),
    )


def _labels(used: Sequence[DeviceProcess], shards: dict[int, Shard]) -> tuple[tuple[DeviceRow, ...], tuple[Blocked, ...]]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0] * 6)
    blocked: dict[tuple[str, str], float] = defaultdict(float)
    waited: dict[str, float] = defaultdict(float)
    calls: Counter[tuple[int, int]] = Counter()
    for shard_id, path, count in ((i, node.path, node.count) for i, shard in shards.items() for node in shard.nodes):
        calls[shard_id, path] += count
    for process in used:
        scales = {(x.shard, x.path): _scale(x, calls[x.shard, x.path]) for x in process.labels}
        for x in process.labels:
            row, scale = sums[_name(shards, x.shard, x.path)], scales[x.shard, x.path]
            for i, n in enumerate((x.spans, x.host_ns, x.least_ns, x.most_ns, x.blocked_ns, x.copy_ns)):
                row[i] += n * scale
        for pair in process.pairs:
            inside, owner = _name(shards, *pair.inside), _name(shards, *pair.owner)
            blocked[inside, owner] += pair.ns * scales.get(pair.inside, 1.0)
            waited[owner] += pair.ns * scales.get(pair.inside, 1.0)
    rows = (DeviceRow(name, *map(round, [*numbers, waited[name]])) for name, numbers in sums.items())
    pairs = (Blocked(inside, owner, round(ns)) for (inside, owner), ns in blocked.items())
    return tuple(sorted(rows, key=lambda r: -max(r.most_ns, r.host_ns))), tuple(sorted(pairs, key=lambda b: -b.ns))


def _scale(label: DeviceLabel, calls: int) -> float:
    """Windows tell what a call takes on average; how many there were is known exactly. Where the two are far apart, the device
    was in use for a part of the run only."""
    scale = calls / label.spans if label.spans and label.path > 0 else 1.0
    return scale if 1 / _FAR <= scale <= _FAR else 1.0


def _name(shards: dict[int, Shard], shard_id: int, path: int) -> str:
    shard = shards.get(shard_id)
    if path < 0:
        return EARLIER
    if shard is None or not 0 < path < len(shard.paths):
        return BETWEEN
    return shard.label_of(path).name


def summarise_reads(session: SessionData) -> tuple[Transfer, ...]:
    """Lines that take tensors of the CPU apart, most calls first."""
    found = _merge_lines([process for process in session.devices if not process.name])
    return tuple(sorted(found, key=lambda t: -t.count))


def _merge_lines(used: Sequence[DeviceProcess]) -> tuple[Transfer, ...]:
    """The same line in several processes is one."""
    sums: dict[tuple[str, int, str, str, str], list[int]] = defaultdict(lambda: [0] * 5)
    for process in used:
        for t in process.transfers:
            row = sums[t.file, t.line, t.function, t.call, t.direction]
            for i, n in enumerate((t.count, t.bytes, t.pinned, t.blocking, t.ns)):
                row[i] += n
    return tuple(sorted((Transfer(*key, *row) for key, row in sums.items()), key=lambda t: -t.ns))


def _memory(used: Sequence[DeviceProcess], shards: dict[int, Shard]) -> DeviceMemory | None:
    points = max((process.memory for process in used), key=len)
    if not points and not any(process.peaks for process in used):
        return None
    thirds = [[p.allocated for p in points[i * len(points) // 3 : (i + 1) * len(points) // 3]] for i in range(3)]
    growth = 0
    if len(points) >= 30:
        first, middle, last = (sorted(third)[len(third) // 2] for third in thirds)
        growth = last - middle if first < middle < last else 0
    peaks: dict[str, int] = {}
    for process in used:
        for shard, path, peak in process.peaks:
            name = _name(shards, shard, path)
            peaks[name] = max(peaks.get(name, 0), peak)
    return DeviceMemory(
        max(p.peak_allocated for p in used), max(p.peak_reserved for p in used), growth,
        1 - points[-1].allocated / points[-1].reserved if points and points[-1].reserved else 0.0,
        tuple(sorted(peaks.items(), key=lambda x: -x[1])),
    )  # fmt: skip


def _notes(used: Sequence[DeviceProcess]) -> tuple[str, ...]:
    notes = [f"process {p.pid}: device times were switched off ({p.broken})" for p in used if p.broken]
    lost = sum(p.dropped + p.unresolved for p in used)
    if lost:
        notes.append(f"{lost} windows were left out: the device never reached their end, or too many events were on their way")
    return tuple(notes)


@dataclass(frozen=True, slots=True)
class OperatorShare:
    label: str
    op_ns: int
    device_ns: int


def share_operators(operators: Operators) -> tuple[OperatorShare, ...]:
    """A deep window by label, largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in operators.rows:
        sums[row.label or BETWEEN][row.kind != "op"] += row.ns
    return tuple(sorted((OperatorShare(label, *ns) for label, ns in sums.items()), key=lambda x: (-x.device_ns, -x.op_ns)))
