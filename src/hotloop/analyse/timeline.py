"""The stretch of a session that a page can draw: a bounded number of blocks, in whole windows.

What lives here: a session's events in, `Timeline` out. Up to `limit` events are all drawn. Of more, the first iterations and
the latest are kept, whole and on every track; if those are still too many, tiny neighbours on one row become one block that
says how many it stands for. Invariants: at most `limit` blocks; drawn + left_out = there; blocks of one row do not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import shard as m
from ..model.session import SessionData

Ints = NDArray[np.int64]
MAX_LANES = 64  # a person does not read more; the busiest are drawn
MAX_ROWS = 24  # nested spans, and tasks beside one another, on one lane
FAR_NS = 1 << 60  # times beyond are nonsense from a damaged file; two of them still add up within 64 bits
TASKS = -1  # the track of spans whose task was awaiting
_SLICES = 1 << 16  # the finest merge: this many slices over everything drawn


@dataclass(frozen=True, slots=True)
class Lane:
    """A track that has something to draw."""

    shard: int
    track: int  # or TASKS
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring iterations of which every event was kept; without iterations, the whole recording."""

    first: int  # -1: without iterations
    last: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns have one entry per block, in order of lane and start. Times are since `base_ns`."""

    base_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    lane: Ints
    row: Ints
    start_ns: Ints
    dur_ns: Ints
    name: Ints  # of the block's longest span, in `names`
    spans: Ints  # how many the block stands for; 0: one that nobody closed
    names: tuple[tuple[str, int], ...]  # name and kind
    windows: tuple[Stretch, ...]
    marks: tuple[tuple[int, int], ...]  # (iteration, its start)
    there: int  # events kept in the session, and spans still open
    drawn: int  # of those

    @property
    def left_out(self) -> int:
        return self.there - self.drawn

    def __len__(self) -> int:
        return len(self.start_ns)


def make_timeline(session: SessionData, limit: int = 20_000) -> Timeline:
    """What to draw of a session: everything there is, or its first and latest iterations."""
    base_ns = min(min(max(0, shard.start_ns), FAR_NS) for shard in session.shards)
    rows = _read_rows(session, base_ns)
    names = _Names(session)
    iterations = _find_iterations(session, base_ns, rows)
    kept = rows
    if len(rows) > limit:
        iterations = _choose_ends(iterations, rows["start"], limit)
        kept = rows if len(iterations) == 1 and iterations[0].first < 0 else rows[_touch(rows, _join(iterations))]
    lanes, blocks = _place(kept, names, session)
    blocks = _merge_tiny(blocks, limit)
    row = _assign_rows(blocks)
    blocks, row = blocks[row >= 0], row[row >= 0]
    heights = np.zeros(len(lanes), np.int64)
    np.maximum.at(heights, blocks["lane"], row + 1)
    return Timeline(
        base_ns=base_ns,
        end_ns=max([0, *(w.end_ns for w in iterations), int((blocks["start"] + blocks["dur"]).max(initial=0))]),
        lanes=tuple(Lane(s, t, _lane_name(session, s, t), int(h)) for (s, t), h in zip(lanes, heights, strict=True)),
        lane=blocks["lane"].astype(np.int64),
        row=row,
        start_ns=blocks["start"].copy(),
        dur_ns=blocks["dur"].copy(),
        name=blocks["name"].astype(np.int64),
        spans=blocks["spans"].copy(),
        names=tuple(names.known),
        windows=tuple(_join(iterations)),
        marks=tuple((w.first, w.start_ns) for w in iterations if w.first >= 0),
        there=len(rows),
        drawn=int(np.maximum(1, blocks["spans"]).sum()),
    )


_ROW = np.dtype(
    [("start", "<i8"), ("dur", "<i8"), ("shard", "<i4"), ("track", "<i4"), ("path", "<u4"), ("iteration", "<i8"), ("open", "?")]
)
_BLOCK = np.dtype([("lane", "<i4"), ("depth", "<i4"), ("start", "<i8"), ("dur", "<i8"), ("name", "<i4"), ("spans", "<i8")])
Rows = np.ndarray[Any, Any]  # of _ROW or _BLOCK


def _read_rows(session: SessionData, base_ns: int) -> Rows:
    """All events and the spans nobody closed, in order of their start."""
    opened = [
        (min(span.start_ns, FAR_NS), min(max(0, shard.end_ns - span.start_ns), FAR_NS), index, span.track, span.path, -1, True)
        for index, shard in enumerate(session.shards)
        for span in shard.open_spans
    ]
    events = session.events
    rows = np.zeros(len(events) + len(opened), _ROW)
    there = rows[: len(events)]
    there["start"], there["dur"] = events.start_ns, events.dur_ns
    there["shard"], there["track"], there["path"] = events.shard, events.track, events.path
    there["iteration"] = events.iteration
    rows[len(events) :] = np.array(opened, _ROW)
    rows["start"] = np.clip(rows["start"], base_ns, FAR_NS) - base_ns
    np.clip(rows["dur"], 0, FAR_NS, out=rows["dur"])
    return rows[np.argsort(rows["start"], kind="stable")] if opened else rows


class _Names:
    """Per path of each shard: its name as a number, and how deep it is drawn."""

    def __init__(self, session: SessionData) -> None:
        self.known: dict[tuple[str, int], int] = {}
        self._depths: list[Ints] = []
        self._numbers: list[Ints] = []
        for shard in session.shards:
            depths: list[int] = []
            numbers: list[int] = []
            for i, path in enumerate(shard.paths):
                label = shard.labels[path.label]
                # What was handed over begins at the top of the track that does it.
                fresh = i == 0 or path.parent >= i or label.kind == m.HANDOFF
                depths.append(0 if fresh or path.parent == 0 else depths[path.parent] + 1)
                numbers.append(self.known.setdefault((label.name, label.kind), len(self.known)))
            self._depths.append(np.array(depths, np.int64))
            self._numbers.append(np.array(numbers, np.int64))

    def depth(self, rows: Rows) -> Ints:
        return self._look_up(self._depths, rows)

    def number(self, rows: Rows) -> Ints:
        return self._look_up(self._numbers, rows)

    def _look_up(self, tables: list[Ints], rows: Rows) -> Ints:
        offsets = np.cumsum([0, *(len(t) for t in tables)])[:-1]
        joined = np.concatenate(tables)
        return joined[offsets[rows["shard"]] + rows["path"]] if len(rows) else np.empty(0, np.int64)


def _find_iterations(session: SessionData, base_ns: int, rows: Rows) -> list[Stretch]:
    """The iterations that have events, by the clock of the learner, in order; without any, one for all."""
    learner = session.shards[0]
    mine = rows[(rows["shard"] == 0) & ~rows["open"]] if learner.iterations_closed else rows[:0]
    if not len(mine):
        return [Stretch(-1, -1, 0, int((rows["start"] + rows["dur"]).max(initial=0)))]
    # An event belongs to the iteration it ends in, so one ends with its last event and the next begins there. Where the one
    # before was not kept, it begins with its first event to end; the first to start may have come from far before.
    mine = mine[np.argsort(mine["start"] + mine["dur"], kind="stable")]
    numbers, first = np.unique(mine["iteration"], return_index=True)
    last = len(mine) - 1 - np.unique(mine["iteration"][::-1], return_index=True)[1]
    begins = mine["start"][first].tolist()
    ends = (mine["start"][last] + mine["dur"][last]).tolist()
    found: dict[int, Stretch] = {}
    for number, begin, end in zip(numbers.tolist(), begins, ends, strict=True):
        begin = found[number - 1].end_ns if number - 1 in found else begin
        found[number] = Stretch(number, number, begin, max(begin, end))
    for row in learner.iterations:
        if row.merged == 1 and row.first in found:  # its own row knows better
            begin, end = (min(max(0, at - base_ns), FAR_NS) for at in (row.start_ns, row.end_ns))
            found[row.first] = Stretch(row.first, row.first, begin, max(begin, end))
    return sorted(found.values(), key=lambda w: (w.start_ns, w.first))


def _join(iterations: list[Stretch]) -> list[Stretch]:
    """Neighbours as one window."""
    windows: list[Stretch] = []
    for one in iterations:
        before = windows[-1] if windows else None
        if before and before.last == one.first - 1:
            windows[-1] = Stretch(before.first, one.last, before.start_ns, max(before.end_ns, one.end_ns))
        else:
            windows.append(one)
    return windows


def _choose_ends(iterations: list[Stretch], starts: Ints, limit: int) -> list[Stretch]:
    """The first and the latest iterations: nearly half of the limit each, and one of each at least.

    Nearly: spans that reach into a window come on top.
    """
    room = limit * 49 // 100
    counts = [int(n) for n in np.diff(np.searchsorted(starts, [(w.start_ns, w.end_ns) for w in iterations]), axis=1).ravel()]
    early = _count_fitting(counts, room)
    late = min(_count_fitting(counts[::-1], room), len(iterations) - early)
    return iterations[:early] + iterations[len(iterations) - late :]


def _count_fitting(counts: list[int], room: int) -> int:
    fitting = int(np.searchsorted(np.cumsum(counts), room, side="right"))
    return max(1, fitting)


def _touch(rows: Rows, windows: list[Stretch]) -> NDArray[np.bool_]:
    """Which rows lie in a window, or reach into one."""
    touching = np.zeros(len(rows), bool)
    end = rows["start"] + rows["dur"]
    for window in windows:
        touching |= (rows["start"] <= window.end_ns) & (end >= window.start_ns)
    return touching


def _place(rows: Rows, names: _Names, session: SessionData) -> tuple[list[tuple[int, int]], Rows]:
    """The tracks to draw, main process first, and their events as blocks in order of lane, depth and start."""
    tracks = [(i, track) for i, shard in enumerate(session.shards) for track in range(TASKS, max(1, len(shard.tracks)))]
    offsets = np.cumsum([0, *(1 + max(1, len(shard.tracks)) for shard in session.shards)])[:-1]
    at = offsets[rows["shard"]] + rows["track"] + 1
    counts = np.bincount(at, minlength=len(tracks))
    busiest = np.argsort(-counts, kind="stable")[:MAX_LANES]
    kept = np.sort(busiest[counts[busiest] > 0])
    lane_of = np.full(len(tracks), -1, np.int16)
    lane_of[kept] = np.arange(len(kept))
    lane, depth = lane_of[at], names.depth(rows).astype(np.int16)
    drawn = (lane >= 0) & (depth < MAX_ROWS)
    # The rows come in order of start; 16 bits sort in linear time.
    order = np.argsort(np.where(drawn, lane * np.int16(MAX_ROWS) + depth, np.int16(MAX_LANES * MAX_ROWS)), kind="stable")
    order = order[: np.count_nonzero(drawn)]
    blocks = np.empty(len(order), _BLOCK)
    blocks["lane"], blocks["depth"] = lane[order], depth[order]
    blocks["start"], blocks["dur"] = rows["start"][order], rows["dur"][order]
    blocks["name"], blocks["spans"] = names.number(rows)[order], ~rows["open"][order]
    return [tracks[i] for i in kept], blocks


def _merge_tiny(blocks: Rows, limit: int) -> Rows:
    """At most `limit` blocks: what is shorter than a slice of time becomes one with its neighbours in the same slice."""
    if len(blocks) <= limit:
        return blocks
    slice_ns = max(1, int(np.ptp(blocks["start"])) // _SLICES)
    edge = np.concatenate(([True], (np.diff(blocks["lane"]) != 0) | (np.diff(blocks["depth"]) != 0)))
    while True:
        tiny = (blocks["dur"] < slice_ns) & (blocks["spans"] > 0)
        slices = blocks["start"] // slice_ns
        begins = edge | ~tiny
        begins[1:] |= ~tiny[:-1] | (np.diff(slices) != 0)
        if np.count_nonzero(begins) <= limit or slice_ns > FAR_NS:
            break
        slice_ns *= 2
    first = np.flatnonzero(begins)
    group = np.cumsum(begins) - 1
    merged = blocks[first].copy()
    merged["spans"] = np.add.reduceat(blocks["spans"], first)
    merged["dur"] = np.maximum.reduceat(blocks["start"] + blocks["dur"], first) - merged["start"]
    longest = np.flatnonzero(blocks["dur"] == np.maximum.reduceat(blocks["dur"], first)[group])[::-1]
    merged["name"][group[longest]] = blocks["name"][longest]  # of several, the first, which is written last
    if len(merged) > limit:  # more tracks and depths than blocks
        merged = merged[np.sort(np.argsort(-merged["dur"], kind="stable")[:limit])]
    return merged


def _assign_rows(blocks: Rows) -> Ints:
    """The row of each block, at its depth or below: overlapping tasks lie beside one another. -1: no room.

    The blocks of a lane that nest keep their depth.
    """
    order = np.lexsort((blocks["depth"], -blocks["dur"], blocks["start"], blocks["lane"]))
    out = np.full(len(blocks), -1, np.int64)
    lane = -1
    free_from: list[int] = []
    columns = (blocks[name][order].tolist() for name in ("lane", "depth", "start", "dur"))
    for i, own, depth, start, dur in zip(order.tolist(), *columns, strict=True):
        if own != lane:
            lane, free_from = own, [0] * MAX_ROWS
        for row in range(depth, MAX_ROWS):
            if free_from[row] <= start:
                out[i], free_from[row] = row, start + dur
                break
    return out


def _lane_name(session: SessionData, shard: int, track: int) -> str:
    if track == TASKS:
        return "tasks, awaiting"
    return next((t.name for t in session.shards[shard].tracks if t.id == track), f"track {track}")
