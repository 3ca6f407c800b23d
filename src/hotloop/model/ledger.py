"""The books: every nanosecond of every track has one owner, and every label its numbers.

What lives here: the definitions.
    measured      innermost span, running on its track; pauses of the garbage collector too
    inferred      between two calls whose phase is known, or in a container of a known phase, outside its parts
    waiting       innermost span is in a known wait
    unattributed  no span is open on the track, or only a container without a phase
    profiler      our own cost: measured where it is long, calibrated and subtracted where it is per span
                  exclusive (measured + inferred) + waiting + unattributed + profiler = lifetime, per track, in whole ns
    container     a span with spans below it: what it holds outside of them nobody measured
    busy          open time of a label, summed over tracks and tasks (awaiting counts, a suspended generator does not)
    union         time in which at least one span of the label is open
    concurrency   busy / union
Who may touch it: anyone; it is pure and needs the standard library only, so the training process uses it too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import shard as m
from .histogram import add_histograms, percentile
from .phase import DECIDING

MEASURED, INFERRED, WAITING, UNATTRIBUTED, PROFILER = "measured", "inferred", "waiting", "unattributed", "profiler"
_ACCOUNT_OF_KIND = {
    m.INFERRED: INFERRED, m.WAIT: WAITING, m.ROOT: UNATTRIBUTED, m.HANDOFF: UNATTRIBUTED, m.PROFILER: PROFILER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Balance:
    """Where the lifetime of one track went."""

    shard: int  # index in the session
    track: int
    name: str
    exclusive_ns: int
    waiting_ns: int
    unattributed_ns: int
    profiler_ns: int
    inferred_ns: int = 0  # of the exclusive time

    @property
    def coverage(self) -> float:
        """The share of the lifetime that somebody accounts for."""
        lifetime = self.lifetime_ns
        return 1 - self.unattributed_ns / lifetime if lifetime else 0.0

    @property
    def lifetime_ns(self) -> int:
        return self.exclusive_ns + self.waiting_ns + self.unattributed_ns + self.profiler_ns


@dataclass(frozen=True, slots=True)
class Operation(m.Readings):
    """One label over the whole session."""

    name: str
    kind: int
    calls: int
    open: int  # spans not closed
    self_ns: int
    waiting_ns: int  # of the waits directly below it
    busy_ns: int
    union_ns: int  # exact, or the lower bound
    union_high_ns: int  # equal to union_ns when exact
    min_ns: int
    max_ns: int
    sumsq: float
    histogram: tuple[int, ...]
    tracks: int
    scale: float  # what is left of a recorded duration without our own cost; min and max are scaled already

    @property
    def concurrency(self) -> float:
        return self.busy_ns / self.union_ns if self.union_ns else 0.0

    @property
    def rise_mean_bytes(self) -> float:
        return self.rise_sum_bytes / max(1, self.peak_readings + self.end_readings)

    @property
    def mean_ns(self) -> float:
        return self.busy_ns / self.calls if self.calls else 0.0

    def percentile_ns(self, q: float) -> float:
        """The q-th part of the durations lies below; off by at most an eighth of itself."""
        return percentile(self.histogram, q, self.min_ns, self.max_ns, self.scale)


@dataclass(frozen=True, slots=True)
class Branch:
    """A path over all tracks: one node of the session's tree. Times are thread-time: they add up over tracks."""

    parent: int  # -1: a root
    name: str
    kind: int
    calls: int
    self_ns: int
    phase: int = 0  # its label's, or that of what it is in, or of what is in it; see model/phase.py
    owns: bool = False  # its own time is work, also where it has parts
    after: int = 0  # of an inferred one: the phase before it, where that is another


@dataclass(frozen=True, slots=True)
class Ledger:
    balances: tuple[Balance, ...]
    operations: tuple[Operation, ...]  # largest union first
    tree: tuple[Branch, ...]  # parents before children
    self_by_track: tuple[tuple[int, int, int, int], ...]  # shard, track, branch, corrected self time
    branch_of: tuple[dict[int, int], ...]  # per shard: path -> branch


def fold(shards: Sequence[m.Shard]) -> Ledger:
    """Close the books of a session: one shard per process."""
    tree, marks, branch_of = _merge_paths(shards)
    per_track: list[tuple[int, int, int, int]] = []
    own_cost: dict[tuple[int, int], int] = defaultdict(int)
    calls = [0] * len(tree)
    self_ns = [0] * len(tree)
    tallies: dict[tuple[str, int], _Tally] = {}
    for index, shard in enumerate(shards):
        corrected, taken = _subtract_own_cost(shard)
        for node, own_self, took in zip(shard.nodes, corrected, taken, strict=True):
            branch = branch_of[index][node.path]
            own_cost[index, node.track] += took
            calls[branch] += node.count
            self_ns[branch] += own_self
            per_track.append((index, node.track, branch, own_self))
        _tally(shard, index, corrected, taken, tallies)
    operations = tuple(sorted((t.finish() for t in tallies.values()), key=lambda o: (-o.union_ns, o.name)))
    _infer_phases(tree, marks, self_ns)
    merged = tuple(Branch(p, n, k, calls[i], self_ns[i], *marks[i]) for i, (p, n, k) in enumerate(tree))
    balances = _balance(shards, merged, per_track, own_cost)
    return Ledger(balances, operations, merged, tuple(per_track), branch_of)


def _balance(
    shards: Sequence[m.Shard],
    tree: Sequence[Branch],
    per_track: Sequence[tuple[int, int, int, int]],
    own_cost: Mapping[tuple[int, int], int],
) -> tuple[Balance, ...]:
    accounts = accounts_of(tree)
    sums: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for at, track_id, branch, ns in per_track:
        sums[at, track_id][accounts[branch]] += ns
    balances = []
    for index, shard in enumerate(shards):
        for track in shard.tracks:
            held = sums[index, track.id]
            balances.append(
                Balance(
                    index, track.id, track.name, exclusive_ns=held[MEASURED] + held[INFERRED], waiting_ns=held[WAITING],
                    unattributed_ns=held[UNATTRIBUTED], profiler_ns=held[PROFILER] + own_cost.get((index, track.id), 0),
                    inferred_ns=held[INFERRED],
                )
            )  # fmt: skip
    return tuple(balances)


def accounts_of(tree: Sequence[Branch]) -> list[str]:
    """What the own time of each branch is: measured, inferred, waiting, unattributed or profiler. Only here is that decided."""
    containers = find_containers([(b.parent, b.kind, b.owns) for b in tree])
    found = []
    for at, branch in enumerate(tree):
        if at in containers:
            found.append(INFERRED if branch.phase else UNATTRIBUTED)
        else:
            found.append(_ACCOUNT_OF_KIND.get(branch.kind, MEASURED))
    return found


def _infer_phases(tree: list[tuple[int, str, int]], marks: list[tuple[int, bool, int]], self_ns: list[int]) -> None:
    """A span without a phase, its own or that of what it is in, has the phase of nearly all that was recognised in it, and what
    it holds has it too: a user's `rollout` collects, and so does the `teacher` called in it."""
    inside = [Counter[int]() for _ in tree]
    for at in reversed(range(len(tree))):  # parents come before what is in them
        parent, _, kind = tree[at]
        phase = marks[at][0]
        if phase in DECIDING and kind == m.USER:
            inside[at][phase] += self_ns[at]
        if parent >= 0:
            inside[parent] += inside[at]
    for at, (parent, _, kind) in enumerate(tree):
        if marks[at][0] or kind not in (m.USER, m.OVERFLOW, m.WAIT, m.GARBAGE):
            continue
        phase, ns = next(iter(inside[at].most_common(1)), (0, 0))
        if ns < _NEARLY_ALL * sum(inside[at].values()) or not ns:
            phase = marks[parent][0] if parent >= 0 and tree[parent][2] in (m.USER, m.OVERFLOW) else 0
        marks[at] = (phase, *marks[at][1:])


def find_containers(tree: Sequence[tuple[int, int, bool]]) -> set[int]:
    """The spans that have spans below them, directly or handed over, in a tree of (parent, kind, owns its time)."""
    containers = set()
    for parent, kind, _ in tree:
        if kind in (m.USER, m.OVERFLOW):
            while parent >= 0 and tree[parent][1] == m.HANDOFF:
                parent = tree[parent][0]
            if parent >= 0 and tree[parent][1] in (m.USER, m.OVERFLOW) and not tree[parent][2]:
                containers.add(parent)
    return containers


_NEARLY_ALL = 0.8
MAX_DEPTH = 200  # what is nested deeper hangs beside its parent: those who write and read JSON go no deeper


def _merge_paths(
    shards: Sequence[m.Shard],
) -> tuple[list[tuple[int, str, int]], list[tuple[int, bool, int]], tuple[dict[int, int], ...]]:
    """One tree for all processes, with each branch's phase and whether it owns its time; work handed over hangs below the path
    it came from, whichever process that is in."""
    by_id = {shard.id: i for i, shard in enumerate(shards)}
    tree: list[tuple[int, str, int]] = []
    marks: list[tuple[int, bool, int]] = []
    depths: list[int] = []
    known: dict[tuple[int, str, int], int] = {}
    maps: tuple[dict[int, int], ...] = tuple({} for _ in shards)

    def above(index: int, path: int) -> tuple[int, int] | None:
        entry = shards[index].paths[path]
        if entry.origin is not None:
            other = by_id.get(entry.origin[0])
            if other is not None and entry.origin[1] < len(shards[other].paths):
                return other, entry.origin[1]
            return (0, 0) if (index, path) != (0, 0) else None
        return (index, entry.parent) if path else None

    def grow(parent: int, label: m.Label) -> int:
        if parent >= 0 and depths[parent] >= MAX_DEPTH:
            parent = tree[parent][0]
        key = (parent, label.name, label.kind)
        if key not in known:
            known[key] = len(tree)
            tree.append(key)
            marks.append((label.phase or (marks[parent][0] if parent >= 0 else 0), label.owns, label.after))
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return known[key]

    for index, shard in enumerate(shards):
        for path in range(len(shard.paths)):
            # Up to something that has its place, then down again. In a damaged file the way up may be long, or a circle,
            # which then hangs below the root.
            way: dict[tuple[int, int], None] = {}
            at: tuple[int, int] | None = (index, path)
            while at is not None and at not in way and at[1] not in maps[at[0]]:
                way[at] = None
                at = above(*at)
            branch = -1 if at is None else maps[at[0]].get(at[1], maps[0].get(0, -1))
            for at in reversed(way):
                branch = maps[at[0]][at[1]] = grow(branch, shards[at[0]].label_of(at[1]))
    return tree, marks, maps


def _subtract_own_cost(shard: m.Shard) -> tuple[list[int], list[int]]:
    """Per node: self time without our own cost, and what was taken off it. Together they are what was recorded."""
    where = {(node.track, node.path): i for i, node in enumerate(shard.nodes)}
    cost = [0] * len(shard.nodes)
    for i, node in enumerate(shard.nodes):
        kind = shard.label_of(node.path).kind
        if not node.count or kind in (m.ROOT, m.PROFILER):
            continue
        cost[i] += node.count * shard.cost_inside_ps
        path = 0 if kind == m.HANDOFF else shard.paths[node.path].parent
        parent = where.get((node.track, path), where.get((node.track, 0)))
        if parent is not None:
            cost[parent] += node.count * shard.cost_outside_ps
    taken = [min(node.self_ns, ps // 1000) for node, ps in zip(shard.nodes, cost, strict=True)]
    return [node.self_ns - t for node, t in zip(shard.nodes, taken, strict=True)], taken


class _Tally:
    """Adds up one label's nodes; `finish` makes the Operation."""

    def __init__(self, name: str, kind: int) -> None:
        self.name, self.kind = name, kind
        self.calls = self.open = self.self_ns = self.waiting_ns = self.raw_busy = self.busy = 0
        self.unions: dict[int, int] = {}
        self.spans_wall: list[tuple[int, int]] = []
        self.nodes: list[m.Node] = []
        self.tracks: set[tuple[int, int]] = set()

    def finish(self) -> Operation:
        ratio = self.busy / self.raw_busy if self.raw_busy else 1.0
        low = max(self.unions.values(), default=0)
        high = sum(self.unions.values())
        if len(self.unions) > 1:
            high = max(low, min(high, max(e for _, e in self.spans_wall) - min(b for b, _ in self.spans_wall)))
        called = [n for n in self.nodes if n.count]
        readings = m.add_readings(self.nodes)
        readings["cpu_ns"] = min(readings["cpu_ns"], readings["cpu_wall_ns"])  # of a short span most is our own reading
        return Operation(
            name=self.name, kind=self.kind, calls=self.calls, open=self.open, self_ns=self.self_ns,
            waiting_ns=self.waiting_ns, busy_ns=self.busy, union_ns=min(round(low * ratio), self.busy),
            union_high_ns=min(round(high * ratio), self.busy),
            min_ns=round(min((n.min_ns for n in called), default=0) * ratio),
            max_ns=round(max((n.max_ns for n in called), default=0) * ratio),
            sumsq=sum(n.sumsq for n in self.nodes), histogram=add_histograms(n.histogram for n in called),
            tracks=len(self.tracks), scale=ratio, **readings,
        )  # fmt: skip


def _tally(shard: m.Shard, index: int, corrected: list[int], taken: list[int], tallies: dict[tuple[str, int], _Tally]) -> None:
    own_below = _sum_subtrees(shard, taken)
    for i, node in enumerate(shard.nodes):
        label = shard.label_of(node.path)
        if label.kind not in (m.USER, m.OVERFLOW, m.WAIT, m.GARBAGE):
            continue
        if label.kind == m.WAIT:
            above = shard.label_of(shard.paths[node.path].parent)
            if above.kind == m.USER:
                tallies.setdefault((above.name, above.kind), _Tally(above.name, above.kind)).waiting_ns += corrected[i]
        tally = tallies.setdefault((label.name, label.kind), _Tally(label.name, label.kind))
        tally.calls += node.count
        tally.self_ns += corrected[i]
        tally.raw_busy += node.total_ns
        tally.busy += max(0, node.total_ns - own_below[i])
        tally.nodes.append(node)
        if node.count or node.self_ns:
            tally.tracks.add((index, node.track))
    outer: set[tuple[int, int]] = set()  # (track, label): in recursion, only the outermost counts
    for span in shard.open_spans:
        label = shard.label_of(span.path)
        tally = tallies.setdefault((label.name, label.kind), _Tally(label.name, label.kind))
        tally.open += 1
        key = (span.track, shard.paths[span.path].label)
        if span.track < 0 or key not in outer:
            outer.add(key)
            tally.raw_busy += max(0, shard.end_ns - span.start_ns)
            tally.busy += max(0, shard.end_ns - span.start_ns)
    for label in shard.labels:
        known = tallies.get((label.name, label.kind))
        if known is None or label.kind in (m.ROOT, m.PROFILER, m.HANDOFF):
            continue
        union = label.union_ns + (max(0, shard.end_ns - label.union_start_ns) if label.union_start_ns else 0)
        if union:
            known.unions[index] = known.unions.get(index, 0) + union
            known.spans_wall.append((shard.start_ns, shard.end_ns))


def _sum_subtrees(shard: m.Shard, values: list[int]) -> list[int]:
    """Per node: the sum over itself and everything below it on the same track."""
    where = {(node.track, node.path): i for i, node in enumerate(shard.nodes)}
    sums = list(values)
    # Paths are numbered parents first, so going backwards every child is complete before it is added to its parent.
    for i in sorted(range(len(shard.nodes)), key=lambda i: -shard.nodes[i].path):
        node = shard.nodes[i]
        if node.path:
            parent = where.get((node.track, shard.paths[node.path].parent))
            if parent is not None:
                sums[parent] += sums[i]
    return sums


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """What a process held at an instant."""

    time_s: float  # since its recording began
    operation: str
    rss_bytes: int
    peak_bytes: int


def list_readings(shard: m.Shard) -> list[MemoryReading]:
    """The readings of memory a process took, in their order."""
    return [
        MemoryReading((s.time_ns - shard.start_ns) / 1e9, shard.label_of(s.path).name, s.rss_bytes, s.peak_bytes)
        for s in shard.snapshots
    ]


def memory_method(shard: m.Shard, operations: Sequence[Operation]) -> str:
    """How the memory of the spans was read, by the best way that was used."""
    if any(o.peak_readings for o in operations):
        return m.PEAK_METHODS.get(shard.peak_method, m.PEAK_METHODS[2])
    return m.PEAK_METHODS[2 if any(o.end_readings for o in operations) else 0]


def windowed_rate(iterations: Sequence[m.Iteration], counter: str, seconds: float = 5.0, least: int = 3) -> float | None:
    """Units of work per second over the latest iterations: at least `least` of them and `seconds` if there are."""
    done = spent = 0
    for number, row in enumerate(reversed(iterations), 1):
        done += row.counts.get(counter, 0)
        spent += row.end_ns - row.start_ns
        if number >= least and spent >= seconds * 1e9:
            break
    return done / spent * 1e9 if done > 0 and spent else None
