"""The balance sheet: rows that add up, whatever the program did."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.model import shard as m
from hotloop.model.ledger import fold
from hotloop.model.phase import COLLECT, LEARN
from hotloop.model.sheet import (
    KINDS,
    PROFILER,
    SPAN,
    UNATTRIBUTED,
    WAITING,
    Sheet,
    fold_small,
    make_sheet,
    round_shares,
    sheet_of_iterations,
    split_exactly,
)
from hotloop.printing.blocks import close_books, component_block, episode_block, rollout_block

from .shards import ROOT, WAIT, node, shard

LOCK = m.Label("(waiting: lock)", m.WAIT, 0, 0)
HANDED = m.Label("(handed over)", m.HANDOFF, 0, 0)
OWN = m.Label("(profiler)", m.PROFILER, 0, 0)
PAUSE = m.Label(m.GC_PAUSE, m.GARBAGE, 0, 0)
BETWEEN = m.Label("learn/other", m.INFERRED, 0, 0, phase=LEARN)
ROLLOUT = m.Label("collect/rollout", m.USER, 0, 0, phase=COLLECT)
LABELS = [ROOT, WAIT, LOCK, HANDED, OWN, *(m.Label(name, m.USER, 0, 0) for name in ("collect", "env_step", "learn", "log"))]
LABELS += [PAUSE, BETWEEN, ROLLOUT]


def check(sheet: Sheet) -> None:
    below: dict[int, int] = {}
    for row in sheet.rows[1:]:
        assert row.ns >= 0
        below[row.parent] = below.get(row.parent, 0) + row.ns
    for i, row in enumerate(sheet.rows):
        assert row.leaf == (i not in below)
        assert row.leaf or row.ns == below[i], row
        assert row.parent < i
        assert row.ns <= sheet.wall_ns
    assert sum(sheet.total_ns(kind) for kind in KINDS) == sheet.wall_ns
    shares = round_shares(sheet)
    assert shares[0] == (1000 if sheet.wall_ns else 0)
    for i, row in enumerate(sheet.rows):
        parts = [shares[c] for c in sheet.children_of(i)]
        assert not parts or sum(parts) == shares[i] or not row.ns
        assert 0 <= shares[i] <= 1000


@st.composite
def shards(draw):
    """A random tree of paths, and nodes of it on up to four tracks."""
    paths = [m.Path(0, 0)]
    for _ in range(draw(st.integers(0, 24))):
        parents = [i for i, path in enumerate(paths) if LABELS[path.label].kind not in (m.PROFILER, m.GARBAGE)]
        paths += [m.Path(draw(st.sampled_from(parents)), draw(st.integers(1, len(LABELS) - 1)))]
    times = st.integers(0, 10**12)
    nodes = [node(0, 0, draw(times))]
    for track in range(draw(st.integers(1, 4))):
        for path in range(len(paths)):
            if (track, path) != (0, 0) and draw(st.booleans()):
                nodes += [node(track, path, draw(times), draw(st.integers(0, 50)), draw(times))]
    costs = {"cost_inside_ps": draw(st.integers(0, 10**9)), "cost_outside_ps": draw(st.integers(0, 10**9))}
    return shard(LABELS, paths, nodes, **costs)


@settings(max_examples=300, deadline=None)
@given(shards(), st.integers(0, 10**12), st.integers(1, 5), st.integers(1, 6))
def test_every_row_is_the_sum_of_the_rows_below_it(shard, least, children, depth):
    ledger = fold([shard])
    for balance in ledger.balances:
        sheet = make_sheet(ledger, balance)
        assert sheet.wall_ns == balance.lifetime_ns
        check(sheet)
        folded = fold_small(sheet, least, children, depth)
        check(folded)
        assert folded.wall_ns == sheet.wall_ns
        assert sheet.total_ns(PROFILER) == balance.profiler_ns
        assert sheet.total_ns(WAITING) == balance.waiting_ns
        assert sheet.total_ns(UNATTRIBUTED) == balance.unattributed_ns
        assert sheet.total_ns(SPAN) == balance.exclusive_ns
        assert sheet.total_ns(SPAN, inferred=True) == balance.inferred_ns


@settings(max_examples=100, deadline=None)
@given(shards(), st.lists(st.dictionaries(st.integers(0, 24), st.integers(0, 10**10)), max_size=3))
def test_blocks_of_any_session_are_text_and_iterations_add_up(shard, rows):
    from dataclasses import replace

    iterations = tuple(
        m.Iteration(i, 1, 0, 10**9, {p: ns for p, ns in row.items() if p < len(shard.paths)}, {}, {})
        for i, row in enumerate(rows)
    )
    shard = replace(shard, iterations=iterations, iterations_closed=len(iterations))
    ledger = fold([shard])
    books = close_books(shard, ledger, {})
    for text in (component_block(books), episode_block(books), rollout_block(shard)):
        assert "nan" not in text
    check(sheet_of_iterations(shard, iterations))


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**15), max_size=20))
def test_parts_of_a_split_add_up_to_it(total, weights):
    parts = split_exactly(total, weights)
    assert len(parts) == len(weights)
    assert sum(parts) == (total if sum(weights) else 0)
    assert all(part >= 0 for part in parts)


def rows_of(sheet: Sheet) -> dict[str, tuple[str, int, bool]]:
    return {row.name: (row.kind, row.ns, row.inferred) for row in sheet.rows}


def test_what_only_a_container_holds_is_unattributed():
    paths = [m.Path(0, 0), m.Path(0, 5), m.Path(1, 6), m.Path(2, 1)]
    nodes = [node(0, 0, 10), node(0, 1, 40, 1, 240), node(0, 2, 30, 5, 200), node(0, 3, 170, 5, 170)]
    ledger = fold([shard(LABELS, paths, nodes)])
    sheet = make_sheet(ledger, ledger.balances[0])
    rows = rows_of(sheet)
    assert rows["(outside its parts)"] == (UNATTRIBUTED, 40, False)
    assert rows["(itself)"] == (SPAN, 30, False), "env_step has no parts: its own time is work"
    assert rows["(waiting: sleep)"] == (WAITING, 170, False)
    assert rows["(no span open)"] == (UNATTRIBUTED, 10, False)
    assert ledger.balances[0].coverage == 1 - 50 / 250


def test_waiting_for_handed_over_work_is_shared_out_by_its_thread_time():
    # collect waits 800 for a pool whose two threads run env_step 1200 and learn 400; 100 of sleep are its own.
    paths = [m.Path(0, 0), m.Path(0, 5), m.Path(1, 2), m.Path(1, 1), m.Path(1, 3), m.Path(4, 6), m.Path(4, 7)]
    main = [node(0, 0, 50), node(0, 1, 50, 1, 1000), node(0, 2, 800, 1, 800), node(0, 3, 100, 1, 100)]
    pool = [node(1, 5, 600, 6, 600), node(2, 5, 600, 6, 600), node(1, 6, 400, 1, 400)]
    ledger = fold([shard(LABELS, paths, [*main, *pool])])
    sheet = make_sheet(ledger, ledger.balances[0])
    check(sheet)
    rows = rows_of(sheet)
    assert rows["env_step"] == (SPAN, 600, True)
    assert rows["learn"] == (SPAN, 200, True)
    assert "(waiting: lock)" not in rows, "explained in full"
    assert rows["(waiting: sleep)"] == (WAITING, 100, False)
    step = next(row for row in sheet.rows if row.name == "env_step")
    assert (step.busy_ns, step.calls) == (1200, 12)


def test_short_work_does_not_explain_a_long_wait():
    paths = [m.Path(0, 0), m.Path(0, 5), m.Path(1, 2), m.Path(1, 3), m.Path(3, 6)]
    nodes = [node(0, 0, 1), node(0, 1, 9, 1, 1009), node(0, 2, 1000, 1, 1000), node(1, 4, 30, 1, 30)]
    ledger = fold([shard(LABELS, paths, nodes)])
    rows = rows_of(make_sheet(ledger, ledger.balances[0]))
    assert rows["env_step"] == (SPAN, 30, True)
    assert rows["(waiting: lock)"] == (WAITING, 970, False)


def test_a_tree_deeper_than_pythons_stack_is_folded():
    labels = [ROOT, *(m.Label(f"l{i}", m.USER, 0, 0) for i in range(3000))]
    paths = [m.Path(0, 0), *(m.Path(i, i + 1) for i in range(3000))]
    ledger = fold([shard(labels, paths, [node(0, i, 1) for i in range(3001)])])
    sheet = make_sheet(ledger, ledger.balances[0])
    assert sheet.wall_ns == 3001
    assert sum(row.leaf for row in fold_small(sheet, 1, most_depth=5).rows) == 6
