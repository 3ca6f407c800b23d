"""The events a trace shows: which ones, and on which lane each is drawn.

What lives here: a session's columns in, `Timeline` out; NumPy, no text. Invariants: at most `limit` events, no time before
the base; the events of one lane are in order and nest: of two that share an instant, one contains the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...analyse.timeline import FAR_NS
from ...model.session import SEGMENT, Events, SessionData
from ...model.shard import Shard

OPEN = 2  # beside SEGMENT: the span was open when the recording ended
MAX_LANES = 1000  # per track; no viewer shows more
TRIES = 8  # lanes looked at for a parent; more would make a thousand tasks slow
CHUNK = 1 << 14  # events that are lines of text at the same time

_TYPES = {"start": "i8", "dur": "i8", "path": "u4", "iteration": "u4", "shard": "u4", "track": "i4", "flags": "u4"}
_ROW = np.dtype(list(_TYPES.items()))
Rows = np.ndarray[Any, Any]  # of _ROW
_NONE, _NEVER = np.empty(0, np.uint32), np.empty(0, np.int64)
NO_EVENTS = Events(_NONE, _NONE, _NONE, _NEVER, _NEVER, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class Lane:
    """Events that nest. A track has one, and more where generators' and tasks' spans overlap."""

    shard: int
    track: int  # or TASKS of analyse.timeline
    number: int  # 0: the track itself
    rows: Rows

    def chunks(self) -> Iterator[Rows]:
        for at in range(0, len(self.rows), CHUNK):
            yield self.rows[at : at + CHUNK]


@dataclass(frozen=True, slots=True)
class Timeline:
    base_ns: int
    lanes: tuple[Lane, ...]
    there: int  # events and open spans in the session
    gap_ns: tuple[int, int]  # from where to where something was left out; (0, 0) when nothing was

    @property
    def written(self) -> int:
        return sum(len(lane.rows) for lane in self.lanes)

    @property
    def left_out(self) -> int:
        return self.there - self.written

    def since_base(self, time_ns: int) -> int:
        return min(max(0, time_ns - self.base_ns), FAR_NS)


def make_timeline(shards: tuple[Shard, ...], kept: Kept) -> Timeline:
    """The kept events on their lanes, in nanoseconds since the session's start."""
    base_ns = min(min(shard.start_ns for shard in shards), FAR_NS)
    rows = kept.rows
    np.clip(rows["start"], base_ns, FAR_NS, out=rows["start"])
    rows["start"] -= base_ns
    np.clip(rows["dur"], 0, FAR_NS, out=rows["dur"])
    return Timeline(base_ns, tuple(_lanes(rows, shards)), kept.there, kept.gap_ns)


@dataclass(frozen=True, slots=True)
class Kept:
    rows: Rows
    there: int
    gap_ns: tuple[int, int]


def keep_events(session: SessionData, limit: int, early_share: float) -> Kept:
    """All events and open spans, or of more than `limit` the earliest and the latest."""
    opened = _open_rows(session.shards)
    there = len(session.events) + len(opened)
    opened = opened[:limit]
    chosen, gap = choose(session.events.start_ns, session.events.dur_ns, limit - len(opened), early_share)
    rows = np.empty(len(chosen) + len(opened), _ROW)
    _copy(session.events, chosen, rows[: len(chosen)])
    rows[len(chosen) :] = opened
    return Kept(rows, there, gap)


def choose(
    start: NDArray[np.int64], dur: NDArray[np.int64], limit: int, early_share: float
) -> tuple[NDArray[np.int64], tuple[int, int]]:
    """Indices of at most `limit` events in order of start, and the times between which some were left out.

    The first ones to start and the last ones to end. What contains an early event started before it and what contains a
    late one ends after it, so both windows come with everything around their events.
    """
    n = len(start)
    if n <= limit:
        return np.arange(n), (0, 0)
    early = int(limit * early_share)
    late = limit - early
    kept = np.zeros(n, bool)
    kept[:early] = True
    if late:
        kept[_last_to_end(start, dur, late)] = True
    missing_from = int(np.argmin(kept))
    to = int(start[missing_from])
    for at in range(0, n, CHUNK):
        ends = (start[at : at + CHUNK] + dur[at : at + CHUNK])[~kept[at : at + CHUNK]]
        to = max(to, int(ends.max(initial=to)))
    return np.flatnonzero(kept), (int(start[missing_from]), to)


def _last_to_end(start: NDArray[np.int64], dur: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    # The last `count` to start end after this instant, so the last to end do too: the candidates are few, and ten
    # million events need no second column of that length.
    cut = start[len(start) - count]
    found = [at + np.flatnonzero(start[at : at + CHUNK] + dur[at : at + CHUNK] >= cut) for at in range(0, len(start), CHUNK)]
    candidates = np.concatenate(found)
    ends = start[candidates] + dur[candidates]
    return candidates[np.argpartition(ends, len(ends) - count)[len(ends) - count :]]


def _copy(events: Events, chosen: NDArray[np.int64], rows: Rows) -> None:
    rows["start"], rows["dur"] = events.start_ns[chosen], events.dur_ns[chosen]
    rows["path"], rows["iteration"] = events.path[chosen], events.iteration[chosen]
    rows["shard"], rows["track"] = events.shard[chosen], events.track[chosen]
    rows["flags"] = events.flags[chosen] & SEGMENT


def _open_rows(shards: tuple[Shard, ...]) -> Rows:
    """Spans that nobody closed, up to the end of their process."""
    spans = [
        (min(span.start_ns, FAR_NS), min(max(0, shard.end_ns - span.start_ns), FAR_NS), span.path, 0, index, span.track, OPEN)
        for index, shard in enumerate(shards)
        for span in shard.open_spans
    ]
    return np.array(spans, _ROW)


def _lanes(rows: Rows, shards: tuple[Shard, ...]) -> Iterator[Lane]:
    if not len(rows):
        return
    parents = [np.array([-1, *(path.parent for path in shard.paths[1:])], np.int64) for shard in shards]
    depth = np.empty(len(rows), np.int64)
    for index in range(len(shards)):
        mine = rows["shard"] == index
        depth[mine] = _depths(parents[index])[rows["path"][mine]]
    # What contains comes before what it contains, also when both begin, or begin and end, at the same instant.
    rows = rows[np.lexsort((depth, -(rows["start"] + rows["dur"]), rows["start"], rows["track"], rows["shard"]))]
    changes = (np.diff(rows["track"]) != 0) | (np.diff(rows["shard"]) != 0)
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(rows)]
    for begin, end in pairwise(bounds):
        part = rows[begin:end]
        shard, track = int(part["shard"][0]), int(part["track"][0])
        lane = assign_lanes(part["start"], part["start"] + part["dur"], part["path"], parents[shard][part["path"]])
        if not lane.any():
            yield Lane(shard, track, 0, part)
            continue
        order = np.argsort(lane, kind="stable")
        edges = np.searchsorted(lane[order], np.arange(int(lane.max()) + 2))
        for number, (first, last) in enumerate(pairwise(edges.tolist())):
            yield Lane(shard, track, number, part[order[first:last]])


def _depths(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    depths: list[int] = []
    for parent in parents.tolist():  # parents come first
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return np.array(depths, np.int64)


def assign_lanes(
    start: NDArray[np.int64], end: NDArray[np.int64], path: NDArray[Any], parent: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The lane of each event so that those of a lane nest; -1 beyond MAX_LANES. The events come in order.

    >>> one, two, inner = (0, 10), (5, 15), (6, 14)
    >>> start, end = np.array([one, two, inner]).T
    >>> assign_lanes(start, end, np.array([1, 2, 3]), np.array([0, 0, 2])).tolist()
    [0, 1, 1]
    """
    out = np.zeros(len(start), np.int32)
    lanes = _Lanes()
    for at in range(0, len(start), CHUNK):
        columns = (column[at : at + CHUNK].tolist() for column in (start, end, path, parent))
        for i, event in enumerate(zip(*columns, strict=True), at):
            lane = lanes.place(*event)
            if lane:
                out[i] = lane
    return out


class _Lanes:
    """What is open on each lane while the sweep goes on."""

    def __init__(self) -> None:
        self._stacks: list[list[tuple[int, int]]] = [[]]  # (end, path), outermost first
        self._busy: list[tuple[int, int]] = []  # heap: when an extra lane becomes empty
        self._empty: list[int] = []
        self._open: dict[int, list[tuple[int, int]]] = {}  # path -> (end, lane) of its spans on extra lanes, sorted

    def place(self, begin: int, until: int, path: int, parent: int) -> int:
        """Below its parent, the one that ends soonest after it; else on the track's own lane; else on an empty one."""
        home = self._stacks[0]
        while home and home[-1][0] <= begin:
            home.pop()
        lane = 0
        if self._busy and not (home and home[-1][1] == parent and until <= home[-1][0]):
            lane = self._below_parent(begin, until, parent)
        if not lane and home and until > home[-1][0]:
            lane = self._empty_lane(begin)
            if lane < 0:
                return lane
            heappush(self._busy, (until, lane))
        self._stacks[lane].append((until, path))
        if lane:
            insort(self._still_open(path, begin), (until, lane))
        return lane

    def _below_parent(self, begin: int, until: int, parent: int) -> int:
        """An extra lane whose innermost span is of the parent's path and contains the event; 0 if there is none."""
        spans = self._still_open(parent, begin)
        first = bisect_left(spans, (until, 0))
        for _, lane in spans[first : first + TRIES]:
            stack = self._stacks[lane]
            while stack and stack[-1][0] <= begin:
                stack.pop()
            if stack and stack[-1][1] == parent and until <= stack[-1][0]:
                return lane
        return 0

    def _still_open(self, path: int, now: int) -> list[tuple[int, int]]:
        spans = self._open.setdefault(path, [])
        del spans[: bisect_right(spans, (now, MAX_LANES))]
        return spans

    def _empty_lane(self, begin: int) -> int:
        while self._busy and self._busy[0][0] <= begin:
            lane = heappop(self._busy)[1]
            self._stacks[lane].clear()
            heappush(self._empty, lane)
        if self._empty:
            return heappop(self._empty)
        if len(self._stacks) == MAX_LANES:
            return -1
        self._stacks.append([])
        return len(self._stacks) - 1
