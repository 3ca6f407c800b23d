"""Phases in Python: what a stretch of the loop was for, known when the next thing happens; see `record/native/phases.h`.

Invariant: labelling moves time from one node of a track to another, so the books close before and after. Whoever calls
holds `state.lock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.histogram import bucket_of
from ...store import schema as s
from .tree import Node, Track, find_child, state, touch

if TYPE_CHECKING:
    from .spans import Zone

UINT64_MAX = (1 << 64) - 1


class Site:
    """A place that calls a model, and what came after the call, the last time."""

    __slots__ = ("phase",)

    def __init__(self) -> None:
        self.phase = 0


class Pending:
    """A model call whose phase the next event decides."""

    __slots__ = ("node", "own", "phase", "site", "total", "zones")

    def __init__(self, node: Node, zones: tuple[Zone | None, ...], site: Site, phase: int, own: int, total: int) -> None:
        self.node, self.zones, self.site = node, zones, site
        self.phase = phase  # as guessed
        self.own, self.total = own, total


class Gaps:
    """The zones of what lies between events; they live as long as the process."""

    def __init__(self) -> None:
        self.between: dict[tuple[int, int], Zone] = {}  # (after, before)
        self.startup: Zone | None = None
        self.end: Zone | None = None


gaps = Gaps()


def phases_start(pairs: list[tuple[int, int, Zone]], start: Zone, end: Zone) -> None:
    """What the stretches between two events are called, and the time before the first and after the last."""
    gaps.between.update(((after, before), zone) for after, before, zone in pairs)
    gaps.startup, gaps.end = start, end


# ---- moving what was recorded ----


def move_self(source: Node, target: Node, ns: int) -> None:
    source.add(s.N_SELF_NS, -ns)
    target.add(s.N_SELF_NS, ns)
    touch(source)
    touch(target)


def move_span(track: Track, span: Pending, zone: Zone) -> None:
    """One finished span of a model call moves to the node of another phase."""
    source, ns = span.node, span.total
    target = find_child(track, source.parent or track.root, zone)
    if target is source or target is track.overflow:
        return
    bucket = bucket_of(ns)
    known = source[s.N_COUNT] and source.block.ints[(source.at + s.N_HIST) * 2 + bucket]
    if not known or not 0 <= span.own <= source[s.N_SELF_NS] or source[s.N_TOTAL_NS] < ns:
        return
    target.note_work()
    union = min(source.label.union_ns, ns)  # of the time the label was open at all
    for node, sign in ((source, -1), (target, 1)):
        node.add(s.N_COUNT, sign)
        node.add(s.N_TOTAL_NS, sign * ns)
        node.block.doubles[node.at + s.N_SUMSQ] += sign * float(ns) * ns
        node.block.ints[(node.at + s.N_HIST) * 2 + bucket] += sign
        node.label.union_ns += sign * union
        node.label[s.L_UNION_NS] = node.label.union_ns
    target[s.N_MIN_NS], target[s.N_MAX_NS] = min(target[s.N_MIN_NS], ns), max(target[s.N_MAX_NS], ns)
    squares = source.block.doubles
    squares[source.at + s.N_SUMSQ] = max(0.0, squares[source.at + s.N_SUMSQ]) if source[s.N_COUNT] else 0.0
    if not source[s.N_COUNT]:
        source[s.N_MIN_NS], source[s.N_MAX_NS] = UINT64_MAX, 0
    move_self(source, target, span.own)


def gap_node(track: Track, zone: Zone) -> Node | None:
    node = find_child(track, track.root, zone)
    return None if node is track.overflow else node


def label_gap(track: Track, zone: Zone | None) -> None:
    """The root's own time that has no phase yet gets one."""
    root = track.root
    node = gap_node(track, zone) if zone is not None and root[s.N_SELF_NS] != track.gap_mark else None
    if node is not None:
        node.note_work()
        move_self(root, node, root[s.N_SELF_NS] - track.gap_mark)
    track.gap_mark = root[s.N_SELF_NS]


# ---- events ----


def begin_loop(track: Track) -> None:
    """The process's first env step or update: whatever was recorded before is start-up, the first iteration begins here."""
    at = track.last
    for other in state.live_tracks():  # the loop may begin in another thread than the main thread
        other.settle(at if other is track else state.clock())
        startup = gap_node(other, gaps.startup) if gaps.startup is not None else None
        for node in other.nodes:
            if startup is not None and node is not startup and node is not other.profiler:
                move_self(node, startup, node[s.N_SELF_NS])
    for other in state.tracks:
        other.gap_mark = other.root[s.N_SELF_NS]
        other.pending.clear()
        for node in other.nodes:
            node.self_at_step, node.count_at_step = node[s.N_SELF_NS], node[s.N_COUNT]
            node.marked_in = 0
    state.touched.clear()
    state.head[s.H_ITER_START_NS] = at
    if not state.head[s.H_FIRST_WORK_NS]:
        state.head[s.H_FIRST_WORK_NS] = at


def resolve(track: Track, event: int) -> None:
    """An event begins: whatever waited for it gets its phase."""
    track.settle(state.clock())
    label_gap(track, gaps.between.get((track.phase, event)) if track.phase else gaps.startup)
    for span in track.pending:
        span.site.phase = event
        zone = span.zones[event]
        if span.phase != event and zone is not None:
            move_span(track, span, zone)
    track.pending.clear()
    track.phase = event


def settle_phases(ending: bool) -> None:
    """Whatever waits now stays as it was guessed: an iteration or the recording ends here.

    A thread without events keeps its time; what is in a row may not move any more."""
    for track in state.live_tracks():
        _unresolved(track, gaps.end if ending else gaps.between.get((track.phase, track.phase)))


def settle_tails() -> None:
    """After the last row, which needs to know what came after the last work."""
    for track in state.live_tracks():
        if state.in_loop and track.phase:
            _end_tail(track)


def settle_ended(track: Track) -> None:
    """Its thread is gone: no event of it will come."""
    _unresolved(track, gaps.between.get((track.phase, track.phase)))


def _unresolved(track: Track, zone: Zone | None) -> None:
    label_gap(track, zone if track.phase else None)
    track.pending.clear()


def _end_tail(track: Track) -> None:
    """What was begun after the last env step or update (a last evaluation, saving, workers that end) is no part of the loop."""
    end = gap_node(track, gaps.end) if gaps.end is not None else None
    if end is None:
        return
    for node in track.nodes:
        if node is not end and node.work == state.work and node[s.N_SELF_NS] > node.self_at_work:
            move_self(node, end, node[s.N_SELF_NS] - node.self_at_work)
