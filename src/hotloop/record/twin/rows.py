"""Iterations and work counters of the Python recorder; see `record/native/rows.h`.

Invariant: rows never outgrow their block; when it is full, neighbours are merged pairwise into the other one.
"""

from __future__ import annotations

from typing import Any

from ...store import schema as s
from .phases import gaps, settle_phases
from .readings import charge
from .spans import awake
from .tree import BUSY, Node, Track, state, touch

WORK_COUNTERS = s.COUNTERS[: s.WORK_COUNTERS]
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
    for name in s.COUNTERS:
        counter_add(name)


def work_done(at_ns: int) -> None:
    header = state.head
    if not header[s.H_FIRST_WORK_NS]:
        header[s.H_FIRST_WORK_NS] = at_ns
    header[s.H_LAST_WORK_NS] = at_ns
    state.work += 1
    state.work_paused_ns = header[s.H_PAUSED_NS]


def count_seen(name: str, n: Any = 1) -> None:
    """The same for what hooks count themselves; what the script says of it from then on is kept apart, or it would count
    twice."""
    if name in WORK_COUNTERS and awake(drops=False) is not None:
        state.hook_counts.add(name)
    _count(name, n)


def count(name: str, n: Any = 1) -> None:
    """Add to a work counter of the current iteration."""
    _count(f"~said_{name}" if isinstance(name, str) and name in state.hook_counts else name, n)


def _count(name: str, n: Any) -> None:
    if awake(drops=False) is None:
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
    track = awake(drops=False)  # it may begin the recording
    state.manual_steps = True
    if track is None:
        return
    gen = track.gen
    track.gen = BUSY
    try:
        with state.lock:
            close_iteration(track)
    finally:
        track.gen = gen
    if state.on_step is not None:
        try:
            state.on_step(state.iteration, state.head[s.H_COUNTERS + 2])
        except Exception:
            state.lose("internal")
        charge()  # what was printed is our time


def _touch_open(track: Track) -> None:
    """Whatever has time in this row is on the list of touched nodes."""
    for node in (track.root, track.profiler, track.top, track.idle, *(frame.node for frame in track.frames)):
        if node is not None:
            touch(node)


def iterate(track: Track) -> None:
    """An env step begins, and with it an iteration. Every one is counted; short ones share a row."""
    state.learned = state.episode_ended = False
    if track.last - state.head[s.H_ITER_START_NS] >= s.ITERATION_LEAST_NS:
        close_iteration(track)
    else:
        state.iteration += 1
        state.unwritten += 1


def close_iteration(track: Track) -> None:
    """Close an iteration, and with it the row it shares with the short ones before it."""
    at = state.clock()
    for other in state.live_tracks():
        other.settle(at)
        _touch_open(other)
    settle_phases(ending=False)
    _put_row(state.unwritten + 1, at, None)
    _next_row(1)
    state.head[s.H_ITER_START_NS] = at
    work_done(at)
    next_window()
    track.charge(state.clock())


def _next_row(closed: int) -> None:
    state.touched.clear()
    state.unwritten = 0
    state.iteration += closed
    state.row += 1
    state.head[s.H_ITERATIONS] = state.iteration


def _put_row(iterations: int, at: int, tails: dict[Node, int] | None) -> None:
    """The row of the iterations since the last one; `tails`: without what came after the last work."""
    header = state.head
    if not state.rows_words:
        return
    assert state.shard is not None
    which, used = header[s.H_ITER_STATE] >> 32, header[s.H_ITER_STATE] & 0xFFFFFFFF
    while used + state.rows_words // 4 > state.rows_words:
        used = _rows_merge(which, used)
        which = 1 - which
    entries: dict[int, list[int]] = {}
    for node in state.touched:
        self_ns, calls = node[s.N_SELF_NS] - node.self_at_step, node[s.N_COUNT] - node.count_at_step
        if tails is not None:
            self_ns -= tails.get(node, 0)
            if node.work == state.work and node.count_at_work >= node.count_at_step:
                calls = node.count_at_work - node.count_at_step
        if self_ns or calls:
            entry = entries.setdefault(node.path, [0, 0])
            entry[0] += calls
            entry[1] += self_ns
        node.self_at_step, node.count_at_step = node[s.N_SELF_NS], node[s.N_COUNT]
    counts: dict[int, int] = {}
    for index in state.counters.values():
        where = s.H_COUNTERS + index * s.COUNTER_WORDS
        increment = (header[where + 2] - header[where + 3]) & MASK64
        header[where + 3] = header[where + 2]
        if increment:
            counts[index] = increment
    row = _row_words(state.iteration - state.unwritten, iterations, header[s.H_ITER_START_NS], at, entries, counts)
    words = state.shard.blocks[s.ITERATIONS][which].words
    for index, word in enumerate(row, s.HEAD_WORDS + used):
        words[index] = word
    header[s.H_ITER_STATE] = which << 32 | used + len(row)


# ---- the last row ----


def end_iterations() -> None:
    """Recording ends: the last iteration is over too, if something was learned in it. Every track is accounted for up to now.

    Its row ends with the last work. What comes after it (files that close, results that are printed) is in no row."""
    due = not state.manual_steps and state.in_loop and state.iteration_due()
    if not due and not state.unwritten:
        return
    state.learned = state.episode_ended = False
    header = state.head
    paused, at = header[s.H_PAUSED_NS] - state.work_paused_ns, header[s.H_LAST_WORK_NS]
    if at + paused < header[s.H_ITER_START_NS]:
        return
    tails: dict[Node, int] = {}
    for track in state.tracks:
        if track.gen in (state.gen, BUSY):
            if not track.retired:
                _touch_open(track)
            _find_tails(track, at, paused, tails)
    _put_row(state.unwritten + due, at + paused, tails)
    _next_row(due)


def _lived_since(track: Track, start: int, paused: int) -> int:
    """How much of the track's time came after an instant: of this life and the one before it, which ended with a pause or a
    thread."""
    lives = track.at + s.T_LIVES
    now, earlier = lives + 2 * track.words[track.at + s.T_LIFE], lives + 2 * (1 - track.words[track.at + s.T_LIFE])
    birth, before = track.words[now], track.words[earlier]
    ended = before + track.words[now + 1] - track.words[earlier + 1]
    if before > start:
        return max(0, track.last - start - paused)  # there may be more before these
    return max(0, track.last - max(birth, start)) + max(0, ended - max(before, start))


def _find_tails(track: Track, end: int, paused: int, tails: dict[Node, int]) -> None:
    """What the track's nodes have in this row from after the last work. Of spans that were opened since, this is known; the
    rest is the end's, the root's, ours, or that of spans still open."""
    left = _lived_since(track, end, paused)

    def take(node: Node, most: int) -> None:
        nonlocal left
        taken = min(node[s.N_SELF_NS] - node.self_at_step - tails.get(node, 0), most, left)
        tails[node] = tails.get(node, 0) + taken
        left -= taken

    newest_first = list(reversed(track.nodes))
    for node in newest_first:
        if node.work == state.work and node[s.N_SELF_NS] > node.self_at_work:
            take(node, node[s.N_SELF_NS] - node.self_at_work)
    end_label = gaps.end.label if gaps.end is not None else None
    for node in newest_first:
        if node.label is end_label:
            take(node, left)
    take(track.root, left)
    take(track.profiler, left)
    for frame in reversed(track.frames):
        take(frame.node, left)
    for opened in (False, True):
        for node in newest_first:
            if left and (node.work == state.work) is opened:
                take(node, left)


def next_window() -> None:
    """Full events for the rows of iterations 0, 1, 2, 10, 20, 40, 80, ...; between them the ring holds the latest."""
    i, want = state.row, 0
    total = state.option("log_events")
    if i == 0:
        want = total // 2
    elif i < 3 or (i % 10 == 0 and (i // 10).bit_count() == 1):
        want = total // 16
    state.log_left = min(want, state.log_room)
