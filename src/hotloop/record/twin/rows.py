"""Iterations and work counters of the Python recorder; see `record/native/rows.h`.

Invariant: rows never outgrow their block; when it is full, neighbours are merged pairwise into the other one.
"""

from __future__ import annotations

from typing import Any

from ...store import schema as s
from .phases import settle_phases
from .readings import charge
from .spans import current_track
from .tree import BUSY, Track, state, touch

RESERVED_COUNTERS = ("env_steps", "updates", "samples", "episodes", "resets")
WORK_COUNTERS = ("env_steps", "updates")  # they bound the training loop
MASK64 = (1 << 64) - 1


def counter_add(name: str) -> int | None:
    index = len(state.counters)
    data = name.encode("utf-8", "surrogatepass")
    assert state.shard is not None
    offset = state.shard.string(data) if index < s.COUNTER_SLOTS else 0
    if not offset:
        state.lose("counter_overflow")
        return None
    at = s.H_COUNTERS + index * s.COUNTER_WORDS
    state.head[at + 1] = len(data)
    state.head[at] = offset
    state.counters[name] = index
    return index


def counters_start() -> None:
    state.counters = {}
    for name in RESERVED_COUNTERS:
        counter_add(name)


def work_done(at_ns: int) -> None:
    header = state.head
    if not header[s.H_FIRST_WORK_NS]:
        header[s.H_FIRST_WORK_NS] = at_ns
    header[s.H_LAST_WORK_NS] = at_ns


def _track() -> Track | None:
    track = current_track()
    if track is None and state.want and getattr(state.local.track, "gen", 0) != BUSY:
        from .session import wake

        track = wake()
    return track


def count_seen(name: str, n: Any = 1) -> None:
    """The same for what hooks count themselves; what the script says of it from then on is kept apart, or it would count
    twice."""
    if name in WORK_COUNTERS and _track() is not None:
        state.hook_counts.add(name)
    _count(name, n)


def count(name: str, n: Any = 1) -> None:
    """Add to a work counter of the current iteration."""
    _count(f"~said_{name}" if isinstance(name, str) and name in state.hook_counts else name, n)


def _count(name: str, n: Any) -> None:
    if _track() is None:
        return
    try:
        increment = int(n)
        if not isinstance(name, str) or not -(1 << 63) <= increment < 1 << 63:
            raise ValueError
    except Exception:
        state.lose("bad_name")
        return
    with state.lock:
        index = state.counters.get(name)
        if index is None:
            index = counter_add(name)
            if index is None:
                return
        at = s.H_COUNTERS + index * s.COUNTER_WORDS + 2
        state.head[at] = (state.head[at] + increment) & MASK64
        if name in WORK_COUNTERS:
            work_done(state.clock())


def _row_words(
    first: int, merged: int, start: int, end: int, entries: dict[int, list[int]], counts: dict[int, int]
) -> list[int]:
    fits = (state.rows_words // 4 - 4 - 2 * s.COUNTER_SLOTS) // 2
    kept = list(entries.items())
    if len(kept) >= fits:
        rest = sum(value for _, (_, value) in kept[fits - 1 :])
        for _ in kept[fits - 1 :]:
            state.lose("iteration_overflow")
        kept = [*kept[: fits - 1], (0, [0, rest])]
    words = [first | merged << 32, start, end, len(kept) | len(counts) << 32]
    for path, (calls, value) in kept:
        words += (path | calls << 32, value)
    for index, increment in counts.items():
        words += (index, increment & MASK64)
    return words


def _rows_merge(which: int, used: int) -> int:
    """Halve the number of rows: neighbours become one, in the other block."""
    assert state.shard is not None
    blocks = state.shard.blocks[s.ITERATIONS]
    source, target = blocks[which].words[s.HEAD_WORDS :], blocks[1 - which].words[s.HEAD_WORDS :]
    at = out = 0
    while at < used:
        head: list[int] = []
        entries: dict[int, list[int]] = {}
        counts: dict[int, int] = {}
        for _ in range(2):
            if at >= used:
                break
            first, start, end, sizes = source[at : at + 4]
            if head:
                head[1] += first >> 32
                head[3] = end
            else:
                head = [first & 0xFFFFFFFF, first >> 32, start, end]
            at += 4
            for _ in range(sizes & 0xFFFFFFFF):
                entry = entries.setdefault(source[at] & 0xFFFFFFFF, [0, 0])
                entry[0] += source[at] >> 32
                entry[1] += source[at + 1]
                at += 2
            for _ in range(sizes >> 32):
                counts[source[at]] = (counts.get(source[at], 0) + source[at + 1]) & MASK64
                at += 2
        row = _row_words(head[0], head[1], head[2], head[3], entries, counts)
        for word in row:
            target[out] = word
            out += 1
    state.head[s.H_ITER_STATE] = (1 - which) << 32 | out
    return out


def step() -> None:
    """Close the current iteration of the training loop."""
    track = _track()
    if track is None:
        return
    gen = track.gen
    track.gen = BUSY
    try:
        with state.lock:
            close_iteration(track)
    finally:
        track.gen = gen
    state.manual_steps = True
    if state.on_step is not None:
        try:
            state.on_step(state.iteration, state.head[s.H_COUNTERS + 2])
        except Exception:
            state.lose("internal")
        charge()  # what was printed is our time


def close_iteration(track: Track) -> None:
    at = state.clock()
    for other in state.tracks:
        if other.retired or other.gen not in (state.gen, BUSY):
            continue
        other.settle(at)
        for node in (other.root, other.profiler, other.top, other.idle, *(frame.node for frame in other.frames[: other.depth])):
            if node is not None:
                touch(node)
    settle_phases(ending=False)
    header = state.head
    if state.rows_words:
        assert state.shard is not None
        which, used = header[s.H_ITER_STATE] >> 32, header[s.H_ITER_STATE] & 0xFFFFFFFF
        while used + state.rows_words // 4 > state.rows_words:
            used = _rows_merge(which, used)
            which = 1 - which
        entries: dict[int, list[int]] = {}
        for node in state.touched:
            self_ns, calls = node.self_ns, node.count
            if self_ns != node.self_at_step or calls != node.count_at_step:
                entry = entries.setdefault(node.path, [0, 0])
                entry[0] += calls - node.count_at_step
                entry[1] += self_ns - node.self_at_step
            node.self_at_step, node.count_at_step = self_ns, calls
        counts: dict[int, int] = {}
        for index in state.counters.values():
            where = s.H_COUNTERS + index * s.COUNTER_WORDS
            increment = (header[where + 2] - header[where + 3]) & MASK64
            header[where + 3] = header[where + 2]
            if increment:
                counts[index] = increment
        row = _row_words(state.iteration, 1, header[s.H_ITER_START_NS], at, entries, counts)
        words = state.shard.blocks[s.ITERATIONS][which].words
        for index, word in enumerate(row, s.HEAD_WORDS + used):
            words[index] = word
        header[s.H_ITER_STATE] = which << 32 | used + len(row)
    state.touched.clear()
    state.iteration += 1
    state.mark = state.iteration + 1
    header[s.H_ITER_START_NS] = at
    header[s.H_ITERATIONS] = state.iteration
    work_done(at)
    next_window()
    track.charge(state.clock())


def next_window() -> None:
    """Full events for iterations 0, 1, 2, 10, 20, 40, 80, ...; between them the ring holds the latest."""
    i, want = state.iteration, 0
    total = state.options["child_log_events" if state.options["is_child"] else "log_events"]
    if i == 0:
        want = total // 2
    elif i < 3 or (i % 10 == 0 and (i // 10).bit_count() == 1):
        want = total // 16
    state.log_left = min(want, state.log_room)
    state.plain_ring = not state.log_left and state.ring is not None
