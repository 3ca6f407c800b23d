"""Which events the page draws: bounded, whole windows, nothing lost without being counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.analyse.timeline import MAX_LANES, MAX_ROWS, TASKS, make_timeline
from hotloop.model import shard as m
from hotloop.model.session import ENDED, Events, Process, SessionData

LABELS = (("root", m.ROOT), ("outer", m.USER), ("inner", m.USER), ("(handed over)", m.HANDOFF), ("task", m.USER))
PATHS = ((0, 0), (0, 1), (1, 2), (1, 3), (3, 4))  # parent, label


def make_shard(number=0, tracks=1, iterations=(), closed=None, open_spans=(), end_ns=10**9, paths=PATHS):
    """A shard with nothing in it but what the timeline reads."""
    values = dict.fromkeys(m.Shard.__dataclass_fields__, 0)
    values |= {"id": number + 1, "pid": 100 + number, "name": f"worker{number}", "native": True, "ended": True}
    values |= {"start_ns": 1000, "end_ns": end_ns, "iterations_closed": len(iterations) if closed is None else closed}
    values |= {"losses": {}, "counters": {}, "snapshots": (), "problems": (), "nodes": (), "open_spans": tuple(open_spans)}
    values["labels"] = tuple(m.Label(name, kind, 0, 0) for name, kind in LABELS)
    values["paths"] = tuple(m.Path(parent, label) for parent, label in paths)
    values["tracks"] = tuple(m.Track(i, f"thread{i}", i, True, 1, 0, end_ns, 0, 0) for i in range(tracks))
    values["iterations"] = tuple(m.Iteration(n, k, begin, end, {}, {}, {}) for n, k, begin, end in iterations)
    return m.Shard(**values)


def make_session(shards, events):
    """Events are (shard, track, path, start, duration, iteration)."""
    events = sorted(events, key=lambda e: e[3])
    columns = list(zip(*events, strict=True)) if events else [()] * 6
    kinds = (np.uint32, np.uint32, np.uint32, np.int64, np.int64, np.uint32)
    arrays = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    processes = tuple(Process(i, s.pid, s.name, ENDED) for i, s in enumerate(shards))
    return SessionData(Path("x"), {}, tuple(shards), processes, Events(*arrays, np.zeros(len(events), np.uint32)), ())


def run_of(iterations, spans, track=0):
    """One outer span per iteration with `spans` short ones in it."""
    rows, events = [], []
    for i in range(iterations):
        begin = 1000 + i * 100_000
        rows.append((i, 1, begin, begin + 100_000))
        events.append((0, track, 1, begin + 10, 99_000, i))
        events += [(0, track, 2, begin + 20 + k * (98_000 // spans), 98_000 // spans - 5, i) for k in range(spans)]
    return rows, events


def blocks_of(timeline):
    return list(
        zip(timeline.lane.tolist(), timeline.row.tolist(), timeline.start_ns.tolist(), timeline.dur_ns.tolist(), strict=True)
    )


def check(timeline, limit):
    assert len(timeline) <= limit
    assert timeline.drawn == int(np.maximum(1, timeline.spans).sum()) and timeline.drawn + timeline.left_out == timeline.there
    assert timeline.left_out >= 0
    reached = {}
    for lane, row, start, dur in sorted(blocks_of(timeline), key=lambda b: (b[0], b[1], b[2])):
        assert 0 <= lane < len(timeline.lanes) and 0 <= row < timeline.lanes[lane].rows and start >= 0 and dur >= 0
        assert start >= reached.get((lane, row), 0)
        reached[lane, row] = start + dur


def test_a_small_session_is_drawn_whole():
    rows, events = run_of(iterations=5, spans=7)
    timeline = make_timeline(make_session([make_shard(iterations=rows)], events))
    check(timeline, 20_000)
    assert timeline.there == timeline.drawn == 40 and timeline.left_out == 0
    assert timeline.marks == tuple((i, i * 100_000) for i in range(5))
    assert [(w.first, w.last) for w in timeline.windows] == [(0, 4)]
    assert {(name, row) for (name, _), row in zip((timeline.names[i] for i in timeline.name), timeline.row, strict=True)} == {
        ("outer", 0), ("inner", 1),
    }  # fmt: skip


def test_of_a_large_session_the_first_and_the_latest_iterations_are_drawn_whole():
    rows, events = run_of(iterations=100, spans=9)
    timeline = make_timeline(make_session([make_shard(iterations=rows)], events), limit=200)
    check(timeline, 200)
    (early, late) = timeline.windows
    assert early.first == 0 and late.last == 99 and early.last >= 7 and late.first <= 92
    assert timeline.there == 1000 and timeline.left_out >= 800
    assert np.all(timeline.spans == 1)
    for window in timeline.windows:
        inside = (timeline.start_ns >= window.start_ns) & (timeline.start_ns + timeline.dur_ns <= window.end_ns)
        assert np.count_nonzero(inside) == 10 * (window.last - window.first + 1)


def test_other_processes_are_drawn_for_the_same_stretch_of_time():
    rows, events = run_of(iterations=100, spans=9)
    child = [(1, 0, 2, 1000 + i * 10_000, 9_000, 0) for i in range(1000)]  # counts no iterations of its own
    timeline = make_timeline(make_session([make_shard(iterations=rows), make_shard(1)], events + child), limit=400)
    check(timeline, 400)
    assert [(lane.shard, lane.name) for lane in timeline.lanes] == [(0, "thread0"), (1, "thread0")]
    theirs = timeline.start_ns[timeline.lane == 1]
    edges = [(w.start_ns - 10_000, w.end_ns) for w in timeline.windows]
    assert len(theirs) > 100 and all(any(a <= t <= b for a, b in edges) for t in theirs)


def test_one_window_with_too_many_events_is_drawn_whole_with_neighbours_merged():
    events = [(0, 0, 1, 1000 + i * 100, 50, 0) for i in range(10_000)] + [(0, 0, 2, 500_000, 300_000, 0)]
    timeline = make_timeline(make_session([make_shard()], events), limit=300)
    check(timeline, 300)
    assert timeline.left_out == 0 and timeline.drawn == 10_001
    assert timeline.spans.max() > 10
    (long,) = np.flatnonzero(timeline.dur_ns == 300_000)
    assert timeline.names[timeline.name[long]][0] == "inner"
    assert timeline.windows[0].first == -1 and timeline.marks == ()


def test_a_merged_block_has_the_name_of_its_longest_span():
    events = [(0, 0, 1 if i % 10 else 2, 1000 + i * 100, 40 if i % 10 else 90, 0) for i in range(1000)]
    shard = make_shard(paths=((0, 0), (0, 1), (0, 2)))
    timeline = make_timeline(make_session([shard], events), limit=20)
    check(timeline, 20)
    assert {timeline.names[i][0] for i in timeline.name[timeline.spans > 10]} == {"inner"}


def test_work_handed_over_starts_at_the_top_of_its_track():
    events = [(0, 1, 3, 2000, 1000, 0), (0, 1, 4, 2100, 500, 0)]
    timeline = make_timeline(make_session([make_shard(tracks=2)], events))
    assert [(lane.track, lane.rows) for lane in timeline.lanes] == [(1, 2)]
    assert timeline.row.tolist() == [0, 1]


def test_overlapping_tasks_lie_beside_one_another():
    events = [(0, 0, 1, 1000 + 10 * i, 500, 0) for i in range(5)]
    timeline = make_timeline(make_session([make_shard()], events))
    check(timeline, 20_000)
    assert timeline.lanes[0].rows == 5


def test_spans_nobody_closed_reach_to_the_end_and_awaiting_tasks_have_a_lane():
    opened = [m.OpenSpan(0, 1, 5000), m.OpenSpan(TASKS, 2, 6000)]
    timeline = make_timeline(make_session([make_shard(open_spans=opened, end_ns=9000)], []))
    check(timeline, 20_000)
    assert [lane.name for lane in timeline.lanes] == ["tasks, awaiting", "thread0"]
    assert timeline.spans.tolist() == [0, 0] and timeline.dur_ns.tolist() == [3000, 4000]


def test_merged_iteration_rows_still_give_windows_by_their_events():
    _, events = run_of(iterations=100, spans=9)
    merged = [(i, 50, 1000 + i * 100_000, 1000 + (i + 50) * 100_000) for i in (0, 50)]
    kept = [e for e in events if e[5] in (0, 1, 2, 10, 20, 40, 97, 98, 99)]
    timeline = make_timeline(make_session([make_shard(iterations=merged, closed=100)], kept))
    assert [(w.first, w.last) for w in timeline.windows] == [(0, 2), (10, 10), (20, 20), (40, 40), (97, 99)]
    for number, start in timeline.marks:
        assert abs(start - number * 100_000) <= 1000


def test_a_session_without_events_has_an_empty_timeline():
    timeline = make_timeline(make_session([make_shard()], []))
    assert len(timeline) == 0 and timeline.there == 0 and timeline.left_out == 0 and timeline.lanes == ()


def test_the_busiest_tracks_and_the_uppermost_rows_are_drawn_and_the_rest_is_counted():
    tracks = MAX_LANES + 10
    events = [(0, t, 1, 1000 + k * 100, 50, 0) for t in range(tracks) for k in range(1 + (t % 7))]
    timeline = make_timeline(make_session([make_shard(tracks=tracks)], events))
    check(timeline, 20_000)
    assert len(timeline.lanes) == MAX_LANES and timeline.left_out > 0
    deep = tuple((max(0, i - 1), 0 if i == 0 else 1) for i in range(MAX_ROWS + 9))
    events = [(0, 0, p, 1000 + p, 5000 - 2 * p, 0) for p in range(1, len(deep))]
    timeline = make_timeline(make_session([make_shard(paths=deep)], events))
    check(timeline, 20_000)
    assert timeline.lanes[0].rows == MAX_ROWS and timeline.left_out == len(events) - MAX_ROWS


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.integers(0, 4), st.one_of(st.integers(0, 3000), st.integers(0, 10**9)),
        st.one_of(st.integers(0, 60), st.integers(0, 10**9)), st.integers(0, 30),
    ),
    max_size=120,
)  # fmt: skip


@settings(deadline=None)
@given(EVENTS, st.integers(1, 150), st.integers(0, 31))
def test_whatever_the_events_the_promises_hold(events, limit, closed):
    rows = [(i, 1, 1000 + i * 30_000, 1000 + (i + 1) * 30_000) for i in range(0, closed, 2)]
    shards = [make_shard(tracks=3, iterations=rows, closed=closed), make_shard(1, tracks=3)]
    check(make_timeline(make_session(shards, events), limit), limit)
