"""What a shard's header counts and when: work counters, iterations, memory snapshots. Standard library only.

Invariant: as in `store.shard`; rows are read one by one, so that nothing is larger than what the block holds.
"""

from __future__ import annotations

import struct

from ..model import shard as m
from . import schema as s
from .blocks import LIVE_NS, MAX_BYTES, MAX_NS, U32, Blocks, Lifetime

_ROW, _ENTRY = (struct.Struct("<" + s.format_of(s.RECORDS[name])) for name in ("RowRec", "EntryRec"))


def read_counters(d: Blocks) -> list[tuple[str, int]]:
    counters: dict[str, int] = {}
    for i in range(s.COUNTER_SLOTS):
        offset, size, total, _ = d.head[s.H_COUNTERS + 4 * i : s.H_COUNTERS + 4 * i + 4]
        if not offset:
            break
        name = d.name(offset, size)
        counters[name if name not in counters else f"{name} ({i})"] = _signed(total)
    return list(counters.items())


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def read_iterations(
    d: Blocks, paths: int, tracks: int, names: list[str], lifetime: Lifetime
) -> tuple[tuple[m.Iteration, ...], int]:
    """The rows, and how many iterations were closed."""
    which, used = d.head[s.H_ITER_STATE] >> 32, d.head[s.H_ITER_STATE] & U32
    closed = d.word(s.H_ITERATIONS, U32, "number of iterations")
    block = next((b for b in d.blocks if b.kind == s.ITERATIONS and b.ordinal == which), None)
    if block is None or not used:
        if used:
            d.problems.append("the iterations are missing")
        return (), closed
    # Rows are published by the header's word, not the block's: what counts is what the block has room for.
    at, stop = block.offset, block.offset + 8 * min(used, block.fits // 8)
    rows: list[m.Iteration] = []
    seen, until = 0, lifetime.start_ns  # what the rows before tell of
    bad = 0
    while at + 8 * s.ROW_WORDS <= stop:
        number, merged, start, end, entries, counts = _ROW.unpack_from(d.data, at)
        merged = max(1, merged)
        at += 8 * s.ROW_WORDS
        split, after = at + 16 * entries, at + 16 * (entries + counts)
        in_order = seen <= number and until <= start <= end and lifetime.holds(end)
        if after > stop or not in_order or number > closed:
            d.problems.append(f"the iterations from number {seen} on cannot be read")
            return tuple(rows), min(closed, seen)
        most = min((end - start) * tracks + LIVE_NS, MAX_NS)
        self_ns: dict[int, int] = {}
        calls: dict[int, int] = {}
        for path, times, value in _ENTRY.iter_unpack(d.data[at:split]):
            value += self_ns.get(path, 0)  # what found no room in a row was added to the root, once more
            if path < paths and value <= most:
                self_ns[path], calls[path] = value, calls.get(path, 0) + times
            else:
                bad += 1
        counted = {}
        for key, times, value in _ENTRY.iter_unpack(d.data[split:after]):
            if key < len(names) and not times:
                counted[names[key]] = _signed(value)
            else:
                bad += 1
        rows.append(m.Iteration(number, merged, start, end, self_ns, calls, counted))
        at, seen, until = after, number + merged, end
    d.left_out(bad, "entries of iterations are impossible and left out")
    if rows and closed < seen <= closed + rows[-1].merged:
        closed = seen  # the last row was written, and the process killed before it said so
    if abs(closed - seen) > 1:
        d.problems.append(f"{closed} iterations are claimed and {seen} told of; the latter counts")
        closed = seen
    return tuple(rows), closed


def read_snapshots(d: Blocks, paths: int, lifetime: Lifetime) -> tuple[m.Snapshot, ...]:
    seen = d.head[s.H_SNAPSHOT_COUNT]
    out = []
    bad = 0
    for i in range(max(0, seen - s.SNAPSHOT_SLOTS), seen) if seen < MAX_NS else ():
        at = s.H_SNAPSHOTS + i % s.SNAPSHOT_SLOTS * s.SNAPSHOT_WORDS
        time_ns, path, rss, peak = d.head[at : at + s.SNAPSHOT_WORDS]
        if path < paths and lifetime.holds(time_ns) and max(rss, peak) <= MAX_BYTES:
            out.append(m.Snapshot(time_ns, path, rss, peak))
        else:
            bad += 1
    d.left_out(bad, "memory snapshots hold impossible values and are left out")
    return tuple(out)
