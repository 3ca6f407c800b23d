"""The latest spans of a shard, as plain rows. Standard library only: training reads its own, for the deep window.

Invariant: as everywhere, no number is believed that cannot be; such a row is left out.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from . import schema as s
from .blocks import walk
from .shard import decode

_EVENT = struct.Struct("<" + s.format_of(s.RECORDS["EventRec"]))


class Span(NamedTuple):
    label: str
    tid: int
    start_ns: int
    dur_ns: int


def read_spans(data: bytes, since_ns: int) -> tuple[list[Span], bool]:
    """Spans that ended after `since_ns`, from the ring and the windows of the timeline; and whether the ring still reaches back
    that far."""
    shard = decode(data)
    tids = [track.tid for track in shard.tracks]
    rows: list[tuple[int, ...]] = []
    complete = True
    for block in walk(data)[0]:
        if block.kind == s.EVENTS and block.used:
            rows += _EVENT.iter_unpack(data[block.offset : block.offset + block.used * _EVENT.size])
        elif block.kind == s.RING and block.capacity:
            written = min(block.capacity, shard.ring_events)
            ring = list(_EVENT.iter_unpack(data[block.offset : block.offset + written * _EVENT.size]))
            if shard.ring_events > block.capacity:
                complete = min((start + dur for start, dur, *_ in ring), default=0) <= since_ns
            rows += ring
    found = {
        Span(shard.label_of(path).name, tids[track], start, dur)
        for start, dur, path, track, _, _ in rows
        if start + dur >= since_ns and 0 < path < len(shard.paths) and track < len(tids)
    }
    return sorted(found, key=lambda x: (x.start_ns, -x.dur_ns)), complete
