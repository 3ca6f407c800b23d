"""Reading a shard's bytes into plain data: blocks, tables, journal, open spans. Standard library only.

What lives here: the inverse of the recorder, used by the training process for its own summaries and by the reader for
everything but events. Invariant: whatever the bytes are, the answer is the longest valid part with the reasons in
`problems`, or one UnreadableError; nothing is sized by a claim the file's length does not bear out.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from ..errors import UnreadableError
from ..model import shard as m
from ..model.histogram import bucket_of
from . import schema as s

_U32 = 0xFFFFFFFF
_HIST = struct.Struct(f"<{s.HIST_BUCKETS}I")
_NODE = struct.Struct("<6Qd9Q")
_MAX_NAME_BYTES = 1 << 20
_MAX_NS = 1 << 62


class BlockView(NamedTuple):
    kind: int
    ordinal: int
    offset: int  # of its first item, in bytes
    item_words: int
    used: int  # items (bytes for strings and rows) that are published and present
    capacity: int  # items there is room for, in the file as it is


def walk(data: bytes | memoryview) -> tuple[list[BlockView], list[str]]:
    """The blocks of a shard in file order, and what was wrong."""
    blocks: list[BlockView] = []
    problems: list[str] = []
    size = len(data)
    at = 0
    while at + s.HEAD_WORDS * 8 <= size:
        magic, kind, sizes, capacity, used = struct.unpack_from("<5Q", data, at)
        if magic == 0:
            break  # reserved, not yet in use
        units, item_words = sizes & _U32, sizes >> 32
        number, ordinal = kind & _U32, kind >> 32
        if magic != s.BLOCK_MAGIC or not 1 <= number < len(s.KIND_NAMES) or units == 0:
            problems.append(f"no block where one should begin, at byte {at}")
            break
        room = min(units * s.BLOCK_BYTES, size - at) - s.HEAD_WORDS * 8
        if at + units * s.BLOCK_BYTES > size:
            problems.append(f"a block of {s.KIND_NAMES[number]} is cut off at byte {size}")
        expected = _ITEM_WORDS.get(number, 0)
        if item_words != expected:
            problems.append(f"a block of {s.KIND_NAMES[number]} has items of {item_words} words, not {expected}")
            item_words = expected
        fits = room // (item_words * 8) if item_words else room
        if used > min(fits, capacity):
            problems.append(f"a block of {s.KIND_NAMES[number]} claims more than it holds")
        blocks.append(BlockView(number, ordinal, at + s.HEAD_WORDS * 8, item_words, min(used, fits), min(capacity, fits)))
        at += units * s.BLOCK_BYTES
    return blocks, problems


_ITEM_WORDS = {
    s.LABELS: s.LABEL_WORDS, s.PATHS: s.PATH_WORDS, s.NODES: s.NODE_WORDS, s.TRACKS: s.TRACK_WORDS,
    s.EVENTS: s.EVENT_WORDS, s.RING: s.EVENT_WORDS,
}  # fmt: skip


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.blocks, self.problems = walk(data)
        if not self.blocks or self.blocks[0].kind != s.HEADER or len(data) < s.BLOCK_BYTES:
            raise UnreadableError("not a HotLoop shard (no header); the process may have died before its first span")
        self.head = struct.unpack_from(f"<{s.BLOCK_WORDS}Q", data, 0)
        version = self.head[s.H_VERSION]
        if version == 0:
            raise UnreadableError("the shard was never started; the process died before its first span")
        if version > s.VERSION:
            raise UnreadableError(f"shard format {version} is newer than this HotLoop reads ({s.VERSION}); upgrade hotloop")

    def items(self, kind: int) -> list[tuple[int, ...]]:
        out: list[tuple[int, ...]] = []
        for block in sorted((b for b in self.blocks if b.kind == kind), key=lambda b: b.ordinal):
            one = struct.Struct(f"<{block.item_words}Q")
            out += one.iter_unpack(self.data[block.offset : block.offset + block.used * one.size])
        return out

    def name(self, offset: int, size: int) -> str:
        data = self.data[offset : offset + min(size, _MAX_NAME_BYTES)]
        if size and not data:
            return "(unreadable name)"
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


def decode(data: bytes) -> m.Shard:
    """A shard from its bytes."""
    d = _Decoder(data)
    h = d.head
    raw_labels = d.items(s.LABELS)
    paths = _paths(d, len(raw_labels))
    tracks_raw = d.items(s.TRACKS)
    nodes = _nodes(d, len(tracks_raw), len(paths))
    union_redo: dict[int, int] = {}
    for track in tracks_raw:
        _redo(d, track, nodes, paths, union_redo)
    open_spans = _open_spans(d, tracks_raw, nodes, len(paths))
    end_ns = h[s.H_END_NS] or _last_seen(h, tracks_raw, nodes, d)
    tracks = _tracks(d, tracks_raw, nodes, end_ns, ended=bool(h[s.H_END_NS]))
    open_labels = {paths[span.path].label for span in open_spans}
    alone: dict[int, int] = defaultdict(int)
    for node in nodes:
        if node is not None:
            alone[paths[node.path].label] += node.total_ns
    labels = tuple(
        m.Label(
            name=d.name(raw[s.L_OFFSET], raw[s.L_BYTES]),
            kind=raw[s.L_KIND] if raw[s.L_KIND] <= m.OVERFLOW else m.USER,
            union_ns=alone[i] if raw[s.L_FLAGS] & s.FLAG_ALONE else union_redo.get(i, raw[s.L_UNION_NS]),
            union_start_ns=_union_start(raw, i, open_spans, paths) if i in open_labels else 0,
            site=d.name(raw[s.L_SITE], raw[s.L_SITE_BYTES]) if raw[s.L_SITE] else "",
            held_across_yield=d.name(raw[s.L_SITE], raw[s.L_SITE_BYTES]) if raw[s.L_FLAGS] & s.FLAG_HELD_ACROSS_YIELD else "",
        )
        for i, raw in enumerate(raw_labels)
    )
    counters = _counters(d)
    return m.Shard(
        id=h[s.H_SHARD_ID], pid=h[s.H_PID], parent_pid=h[s.H_PARENT_PID], parent_shard=h[s.H_PARENT_SHARD],
        name=d.name(h[s.H_NAME], h[s.H_NAME_BYTES]), epoch=h[s.H_EPOCH], native=bool(h[s.H_NATIVE]), clock=h[s.H_CLOCK],
        start_ns=h[s.H_START_NS], start_unix_ns=h[s.H_START_UNIX_NS], end_ns=end_ns, ended=bool(h[s.H_END_NS]),
        process_start=h[s.H_PROC_START], paused_ns=h[s.H_PAUSED_NS], cost_inside_ps=h[s.H_COST_INSIDE_PS],
        cost_outside_ps=h[s.H_COST_OUTSIDE_PS], cost_error_ps=h[s.H_COST_ERROR_PS], peak_method=h[s.H_PEAK_METHOD],
        disk_errno=h[s.H_DISK_ERRNO], first_work_ns=h[s.H_FIRST_WORK_NS], last_work_ns=h[s.H_LAST_WORK_NS],
        iterations_closed=h[s.H_ITERATIONS], ring_events=h[s.H_RING_HEAD],
        logged_events=sum(b.used for b in d.blocks if b.kind == s.EVENTS),
        labels=labels, paths=tuple(paths), nodes=tuple(node for node in nodes if node is not None), tracks=tracks,
        open_spans=tuple(open_spans), lifted=h[s.H_LIFTED], counters=counters,
        iterations=_iterations(d, len(paths), list(counters)),
        losses={name: h[s.H_LOSSES + i] for i, name in enumerate(s.LOSSES) if h[s.H_LOSSES + i]},
        snapshots=_snapshots(d, len(paths)), problems=tuple(d.problems),
    )  # fmt: skip


def _paths(d: _Decoder, labels: int) -> list[m.Path]:
    paths: list[m.Path] = []
    for link, shard, path, _ in d.items(s.PATHS):
        parent, label = link & _U32, link >> 32
        if label >= labels or (paths and parent >= len(paths)):
            d.problems.append(f"path {len(paths)} refers to what is not there; it and what follows are left out")
            break
        paths.append(m.Path(parent, label, (shard, path) if shard else None))
    if not paths:
        raise UnreadableError("the shard holds no paths; the process died before its first span")
    return paths


def _nodes(d: _Decoder, tracks: int, paths: int) -> list[m.Node | None]:
    nodes: list[m.Node | None] = []
    bad = 0
    for block in sorted((b for b in d.blocks if b.kind == s.NODES), key=lambda b: b.ordinal):
        for i in range(block.used):
            at = block.offset + i * s.NODE_WORDS * 8
            where, count, self_ns, total, least, most, sumsq, _, cpu, cpu_wall, rise, rises, rss, reads, gpu, _ = (
                _NODE.unpack_from(d.data, at)
            )
            track, path = where & _U32, where >> 32
            if track >= tracks or path >= paths or max(self_ns, total, most if count else 0) > _MAX_NS or sumsq != sumsq:
                nodes.append(None)
                bad += bool(count or self_ns)  # one without any is of a track that was being made
                continue
            nodes.append(
                m.Node(
                    track=track, path=path, count=count, self_ns=self_ns, total_ns=total, min_ns=least if count else 0,
                    max_ns=most, sumsq=sumsq, histogram=_HIST.unpack_from(d.data, at + s.N_HIST * 8), cpu_ns=cpu,
                    cpu_wall_ns=cpu_wall, rise_max_bytes=rise, rise_sum_bytes=rises, rss_max_bytes=rss,
                    peak_readings=reads & _U32, end_readings=reads >> 32, gpu_peak_bytes=gpu,
                )
            )  # fmt: skip
    if bad:
        d.problems.append(f"{bad} nodes with impossible values are left out")
    return nodes


def _redo(d: _Decoder, track: tuple[int, ...], nodes: list[m.Node | None], paths: list[m.Path], unions: dict[int, int]) -> None:
    """Complete the span that was being closed when the process died: its new values are in the journal."""
    if not track[s.T_STATE] & 1:
        return
    number, duration, count, total, _, hist, union = track[s.T_JOURNAL : s.T_JOURNAL + 7]
    node = nodes[number] if number < len(nodes) else None
    if node is None or duration > _MAX_NS:
        d.problems.append("a journal entry refers to what is not there")
        return
    sumsq = struct.unpack("<d", struct.pack("<Q", track[s.T_JOURNAL + s.J_SUMSQ]))[0]
    histogram = list(node.histogram)
    histogram[bucket_of(duration)] = hist & _U32
    nodes[number] = replace(
        node, count=count, total_ns=total, sumsq=sumsq, histogram=tuple(histogram),
        min_ns=min(node.min_ns, duration) if node.count else duration, max_ns=max(node.max_ns, duration),
    )  # fmt: skip
    unions[paths[node.path].label] = union


def _depth(track: tuple[int, ...]) -> int:
    state = track[s.T_STATE]
    return ((state & s.STATE_DEPTH_MASK) >> 1) - (state & 1)


def _open_spans(d: _Decoder, tracks: list[tuple[int, ...]], nodes: list[m.Node | None], paths: int) -> list[m.OpenSpan]:
    spans: list[m.OpenSpan] = []
    for number, track in enumerate(tracks):
        for i in range(min(max(0, _depth(track)), s.TRACK_FRAMES)):
            node_id, start = track[s.T_FRAMES + 2 * i : s.T_FRAMES + 2 * i + 2]
            node = nodes[node_id] if node_id < len(nodes) else None
            if node is not None and start < _MAX_NS:
                spans.append(m.OpenSpan(number, node.path, start))
    for i in range(s.SUSPENDED_SLOTS):
        path, start = d.head[s.H_SUSPENDED + 2 * i : s.H_SUSPENDED + 2 * i + 2]
        if 0 < path <= paths and start < _MAX_NS:
            spans.append(m.OpenSpan(-1, path - 1, start))
    return spans


def _union_start(raw: tuple[int, ...], label: int, spans: list[m.OpenSpan], paths: list[m.Path]) -> int:
    if raw[s.L_FLAGS] & s.FLAG_ALONE:
        return min(span.start_ns for span in spans if paths[span.path].label == label)
    return raw[s.L_UNION_START]


def _spent(track: tuple[int, ...], self_ns: int) -> int:
    """Up to when the track is accounted for."""
    which = track[s.T_LIFE] & 1
    birth, before = track[s.T_LIVES + 2 * which], track[s.T_LIVES + 2 * which + 1]
    return birth + max(0, self_ns - before)


def _self_by_track(nodes: list[m.Node | None]) -> dict[int, int]:
    sums: dict[int, int] = defaultdict(int)
    for node in nodes:
        if node is not None:
            sums[node.track] += node.self_ns
    return sums


def _last_seen(h: tuple[int, ...], tracks: list[tuple[int, ...]], nodes: list[m.Node | None], d: _Decoder) -> int:
    """The latest instant anything in the shard speaks of."""
    sums = _self_by_track(nodes)
    seen = [h[s.H_START_NS], h[s.H_ITER_START_NS], h[s.H_LAST_WORK_NS]]
    seen += [_spent(track, sums[i]) for i, track in enumerate(tracks)]
    return max(at for at in seen if at < _MAX_NS)


def _tracks(
    d: _Decoder, raw: list[tuple[int, ...]], nodes: list[m.Node | None], end_ns: int, ended: bool
) -> tuple[m.Track, ...]:
    """The tracks. In a process that did not end by itself, a live one is accounted for to the end: its innermost span."""
    sums = _self_by_track(nodes)
    out = []
    for number, track in enumerate(raw):
        alive = track[s.T_ALIVE] == 1
        until, depth = _spent(track, sums[number]), max(0, _depth(track))
        if alive and not ended and until < end_ns:
            top = track[s.T_FRAMES + 2 * (depth - 1)] if 0 < depth <= s.TRACK_FRAMES else track[s.T_BASE]
            node = nodes[top] if top < len(nodes) else None
            if node is not None and node.track == number:
                nodes[top] = replace(node, self_ns=node.self_ns + end_ns - until)
                sums[number] += end_ns - until
                until = end_ns
        out.append(
            m.Track(
                id=number, name=d.name(track[s.T_NAME], track[s.T_NAME_BYTES]), tid=track[s.T_TID], alive=alive and not ended,
                threads=track[s.T_OCCUPANTS], lifetime_ns=sums[number], end_ns=until,
                entered=track[s.T_STATE] >> s.STATE_ENTERED_SHIFT, depth=depth,
            )
        )  # fmt: skip
    return tuple(out)


def _counters(d: _Decoder) -> dict[str, int]:
    counters = {}
    for i in range(s.COUNTER_SLOTS):
        offset, size, total, _ = d.head[s.H_COUNTERS + 4 * i : s.H_COUNTERS + 4 * i + 4]
        if not offset:
            break
        name = d.name(offset, size)
        counters[name if name not in counters else f"{name} ({i})"] = _signed(total)
    return counters


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _iterations(d: _Decoder, paths: int, names: list[str]) -> tuple[m.Iteration, ...]:
    which, used = d.head[s.H_ITER_STATE] >> 32, d.head[s.H_ITER_STATE] & _U32
    block = next((b for b in d.blocks if b.kind == s.ITERATIONS and b.ordinal == which), None)
    if block is None or not used:
        return ()
    # Rows are published by the header's word, not the block's: what counts is what the file holds.
    words_there = min(used, (len(d.data) - block.offset) // 8)
    words = struct.unpack_from(f"<{words_there}Q", d.data, block.offset)
    rows: list[m.Iteration] = []
    at = 0
    while at + s.ROW_WORDS <= words_there:
        first, start, end, sizes = words[at : at + s.ROW_WORDS]
        entries, counts = sizes & _U32, sizes >> 32
        size = s.ROW_WORDS + s.ENTRY_WORDS * (entries + counts)
        if at + size > words_there or end < start or end > _MAX_NS:
            d.problems.append(f"the iterations from number {first & _U32} on cannot be read")
            break
        self_ns: dict[int, int] = {}
        calls: dict[int, int] = {}
        for i in range(at + s.ROW_WORDS, at + s.ROW_WORDS + 2 * entries, 2):
            path = words[i] & _U32
            if path < paths and words[i + 1] < _MAX_NS:
                self_ns[path] = self_ns.get(path, 0) + words[i + 1]
                calls[path] = calls.get(path, 0) + (words[i] >> 32)
        counted = {}
        for i in range(at + s.ROW_WORDS + 2 * entries, at + size, 2):
            if words[i] < len(names):
                counted[names[words[i]]] = _signed(words[i + 1])
        rows.append(m.Iteration(first & _U32, max(1, first >> 32), start, end, self_ns, calls, counted))
        at += size
    return tuple(rows)


def _snapshots(d: _Decoder, paths: int) -> tuple[m.Snapshot, ...]:
    seen = d.head[s.H_SNAPSHOTS]
    out = []
    for i in range(max(0, seen - s.SNAPSHOT_SLOTS), seen) if seen < _MAX_NS else ():
        at = s.H_SNAPSHOTS + 1 + i % s.SNAPSHOT_SLOTS * s.SNAPSHOT_WORDS
        time_ns, path, rss, peak = d.head[at : at + s.SNAPSHOT_WORDS]
        if path < paths:
            out.append(m.Snapshot(time_ns, path, rss, peak))
    return tuple(out)
