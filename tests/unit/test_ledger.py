"""The arithmetic of the books, on shards made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotloop.analyse.unions import union_ns
from hotloop.model import histogram as h
from hotloop.model import shard as m
from hotloop.model.ledger import fold
from hotloop.model.phase import COLLECT, LEARN

from .shards import ROOT, WAIT, node, shard


def simple(**more) -> m.Shard:
    labels = [ROOT, m.Label("a", m.USER, 100, 0), WAIT]
    paths = [m.Path(0, 0), m.Path(0, 1), m.Path(1, 2)]
    nodes = [node(0, 0, 50), node(0, 1, 70, 10, 100), node(0, 2, 30, 10, 30)]
    return shard(labels, paths, nodes, **more)


def test_the_four_parts_add_up():
    (balance,) = fold([simple()]).balances
    assert (balance.exclusive_ns, balance.waiting_ns, balance.unattributed_ns, balance.profiler_ns) == (70, 30, 50, 0)
    assert balance.lifetime_ns == 150


def test_own_cost_moves_time_but_never_makes_or_loses_any():
    for inside, outside in ((500, 700), (10**6, 10**6), (0, 10**9)):
        (balance,) = fold([simple(cost_inside_ps=inside, cost_outside_ps=outside)]).balances
        assert balance.lifetime_ns == 150
        assert min(balance.exclusive_ns, balance.waiting_ns, balance.unattributed_ns, balance.profiler_ns) >= 0


def test_waits_are_shown_with_the_span_they_are_in():
    a = next(o for o in fold([simple()]).operations if o.name == "a")
    assert (a.self_ns, a.waiting_ns, a.busy_ns) == (70, 30, 100)


def test_two_processes_give_an_interval_for_the_union():
    first = simple()
    second = replace(simple(), id=2, pid=2, labels=(ROOT, m.Label("a", m.USER, 60, 0), WAIT))
    a = next(o for o in fold([first, second]).operations if o.name == "a")
    assert a.busy_ns == 200
    assert (a.union_ns, a.union_high_ns) == (100, 160)
    assert a.calls == 20


def test_work_handed_over_by_another_process_hangs_below_its_origin():
    main = simple()
    labels = (ROOT, m.Label("(handed over)", m.HANDOFF, 0, 0), m.Label("b", m.USER, 5, 0))
    worker = shard(
        labels,
        [m.Path(0, 0), m.Path(0, 1, origin=(1, 1)), m.Path(1, 2)],
        [node(0, 0, 9), node(0, 1, 2, 1, 7), node(0, 2, 5, 1, 5)],
        id=2,
    )
    ledger = fold([main, worker])
    b = next(x for x in ledger.tree if x.name == "b")
    assert ledger.tree[ledger.tree[b.parent].parent].name == "a"
    assert ledger.balances[1].unattributed_ns == 11


def test_an_origin_that_is_not_there_falls_back_to_the_root():
    worker = shard(
        (ROOT, m.Label("(handed over)", m.HANDOFF, 0, 0)), [m.Path(0, 0), m.Path(0, 1, origin=(99, 5))], [node(0, 1, 4, 1, 4)]
    )
    ledger = fold([worker])
    handed = next(x for x in ledger.tree if x.name == "(handed over)")
    assert ledger.tree[handed.parent].name == "(root)"


def test_open_spans_count_as_busy_up_to_the_end():
    labels = (ROOT, m.Label("a", m.USER, 100, 900), WAIT)
    open_a = replace(simple(), open_spans=(m.OpenSpan(0, 1, 900),), labels=labels)
    a = next(o for o in fold([open_a]).operations if o.name == "a")
    assert (a.open, a.busy_ns, a.union_ns) == (1, 200, 200)


@pytest.mark.parametrize("value", [0, 1, 15, 16, 17, 19, 20, 1000, 10**9, 10**13, 10**18])
def test_every_duration_lies_in_its_bucket(value):
    low, high = h.bucket_bounds(h.bucket_of(value))
    assert low <= value
    assert value < high or h.bucket_of(value) == h.BUCKETS - 1


def test_percentiles_stay_within_the_extremes():
    counts = [0] * h.BUCKETS
    counts[h.bucket_of(1000)] = 10
    for q in (0, 0.01, 0.5, 0.99, 1):
        assert 900 <= h.percentile(counts, q, 900, 1100) <= 1100
    assert h.percentile([0] * h.BUCKETS, 0.5, 3, 7) == 7


def test_unions_of_random_intervals_match_a_count_of_covered_points():
    rng = np.random.default_rng(4)
    for _ in range(200):
        start = rng.integers(0, 60, rng.integers(0, 12))
        end = start + rng.integers(0, 9, len(start))
        covered = {p for b, e in zip(start, end, strict=True) for p in range(b, e)}
        assert union_ns(start.astype(np.int64), end.astype(np.int64)) == len(covered)


def test_a_span_of_the_users_has_the_phase_of_what_was_recognised_in_it_and_hands_it_down():
    user = lambda name, phase=0: m.Label(name, m.USER, 100, 0, phase=phase)
    labels = [ROOT, user("loop"), user("rollout"), user("collect/env_step", COLLECT), user("teacher"), user("update"),
              user("learn/backward", LEARN), user("alone"), WAIT]  # fmt: skip
    # loop > rollout > env_step, teacher > wait; loop > update > backward; alone
    paths = [m.Path(0, 0), m.Path(0, 1), m.Path(1, 2), m.Path(2, 3), m.Path(2, 4), m.Path(1, 5), m.Path(5, 6), m.Path(0, 7),
             m.Path(4, 8)]  # fmt: skip
    nodes = [node(0, path, 50, 10, 100) for path in range(len(paths))]
    phases = {branch.name: branch.phase for branch in fold([shard(labels, paths, nodes)]).tree}
    assert phases["rollout"] == phases["teacher"] == phases["(waiting: sleep)"] == COLLECT
    assert phases["update"] == LEARN
    assert phases["loop"] == 0, "half of it collects, half of it learns"
    assert phases["alone"] == 0


def test_without_hooks_nothing_has_a_phase():
    assert {branch.phase for branch in fold([simple()]).tree} == {0}
