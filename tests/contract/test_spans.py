from __future__ import annotations

import contextlib

import pytest

from hotloop.model import shard as m


def test_an_exit_stack_opens_and_closes_spans(rig):
    with contextlib.ExitStack() as stack:
        assert stack.enter_context(rig.module.profile("a")) is rig.module.profile("a")
        stack.enter_context(rig.module.profile("b"))
        rig.tick(5)
    assert rig.node("a", "b").total_ns == rig.node("a").total_ns == 5
    with pytest.raises(TypeError):
        type(rig.module.profile("a")).__enter__()


def test_exclusive_time_goes_to_the_innermost_span(rig):
    rig.tick(5)
    rig.enter("a")
    rig.tick(10)
    rig.span("b", 3)
    rig.tick(2)
    rig.exit("a")
    rig.tick(7)
    assert rig.node("a").self_ns == 12
    assert rig.node("a").total_ns == 15
    assert rig.node("a", "b").self_ns == 3
    assert rig.node().self_ns == 12  # nothing open: unattributed
    balance = rig.fold().balances[0]
    # a holds b and belongs to no phase: what it holds outside of b is nobody's
    assert (balance.exclusive_ns, balance.unattributed_ns, balance.lifetime_ns) == (3, 24, 27)


def test_statistics_of_a_label(rig):
    for ns in (30, 10, 20, 1_000_000):
        rig.span("x", ns)
    node = rig.node("x")
    assert (node.count, node.total_ns, node.min_ns, node.max_ns) == (4, 1_000_060, 10, 1_000_000)
    assert node.sumsq == pytest.approx(30**2 + 10**2 + 20**2 + 1e12)
    assert sum(node.histogram) == 4


def test_percentiles_come_from_the_histogram(rig):
    for ns in range(1000, 2000):
        rig.span("x", ns)
    operation = rig.operation("x")
    assert operation.percentile_ns(0.5) == pytest.approx(1500, rel=0.02)
    assert operation.percentile_ns(0.95) == pytest.approx(1950, rel=0.02)
    assert operation.min_ns <= operation.percentile_ns(0.01) <= operation.percentile_ns(0.99) <= operation.max_ns


def test_recursion_counts_every_call_and_its_time_once(rig):
    for _ in range(5):
        rig.enter("f")
        rig.tick(10)
    for _ in range(5):
        rig.exit("f")
    node = rig.node("f")
    assert (node.count, node.total_ns, node.self_ns, node.max_ns) == (5, 50, 50, 50)
    assert rig.operation("f").union_ns == 50


def test_indirect_recursion_folds_into_one_tree(rig):
    for _ in range(100):
        rig.enter("f")
        rig.tick(1)
        rig.enter("g")
        rig.tick(2)
    for _ in range(100):
        rig.exit("g")
        rig.exit("f")
    shard = rig.read()
    assert sum(shard.label_of(n.path).kind == m.USER for n in shard.nodes) == 2
    assert rig.node("f").self_ns == 100
    assert rig.node("f", "g").self_ns == 200
    assert rig.operation("f").busy_ns == 300
    assert rig.operation("g").busy_ns == 299


def test_ten_thousand_deep_recursion_is_recorded_whole(rig):
    for _ in range(10_000):
        rig.enter("deep")
        rig.tick(1)
    for _ in range(10_000):
        rig.exit("deep")
    node = rig.node("deep")
    assert (node.count, node.total_ns) == (10_000, 10_000)
    assert rig.read().losses == {"deep": 10_000 - 240}


def test_an_exception_passes_through_and_closes_the_span(rig):
    with pytest.raises(KeyError, match="mine"), rig.module.profile("x"):
        rig.tick(4)
        raise KeyError("mine")
    assert rig.node("x").total_ns == 4


def test_closing_an_outer_span_first_closes_the_inner_ones_and_says_so(rig):
    rig.enter("outer")
    rig.enter("inner")
    rig.tick(6)
    rig.exit("outer")
    rig.exit("inner")
    assert rig.node("outer").count == 1
    assert rig.node("outer", "inner").count == 1
    assert rig.read().losses == {"unbalanced": 1, "inherited": 1}


def test_an_exit_without_enter_is_counted_and_harmless(rig):
    rig.exit("never")
    rig.span("x", 3)
    assert rig.node("x").count == 1
    assert rig.read().losses == {"stray_exit": 1}


def test_an_exit_on_another_thread_is_counted_and_harmless(rig):
    rig.enter("x")
    rig.tick(5)
    rig.track(60)
    rig.exit("x")
    rig.track(-1)
    rig.tick(5)
    rig.exit("x")
    assert rig.node("x").total_ns == 10
    assert rig.read().losses == {"stray_exit": 1}


def test_attempted_equals_recorded_plus_open(rig):
    for i in range(50):
        rig.enter(f"label{i % 7}")
        rig.tick(1)
        if i % 3:
            rig.exit(f"label{i % 7}")
    shard = rig.read()
    attempted = sum(t.entered for t in shard.tracks)
    assert attempted == 50
    assert attempted == sum(n.count for n in shard.nodes) + len(shard.open_spans)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "\ud800 lone", "<b>&", "\x1b[31mred", "\u202eabc", "名前", "x" * 2_000_000], ids=lambda n: repr(n[:12])
)
def test_any_name_is_kept(rig, name):
    rig.span(name, 1)
    names = [label.name for label in rig.read().labels if label.kind == m.USER and not label.phase]
    assert names == [name if len(name) < 2_000_000 else name[: 1 << 20]]


def test_what_is_no_string_becomes_one(rig):
    class Odd:
        def __str__(self):
            raise RuntimeError("no")

    for name in (12, None, ("a", 1), Odd(), ["x"]):
        with rig.module.profile(name):
            rig.tick(1)
    names = {label.name for label in rig.read().labels if label.kind == m.USER and not label.phase}
    assert names == {"12", "None", "('a', 1)", "(unnamed)", "['x']"}
    assert rig.read().losses["bad_name"] >= 5


def test_too_many_labels_share_one_row_and_no_time_is_lost(recorder):
    from .conftest import Rig

    rig = Rig(recorder, budget=2 << 20).open()
    try:
        for i in range(5000):
            rig.span(f"label-{recorder.__name__}-{i}", 2)
        shard = rig.read()
        more = next(o for o in rig.fold().operations if o.name == "(more labels)")
        assert more.calls > 0
        assert shard.losses["label_overflow"] == more.calls
        assert sum(n.count for n in shard.nodes) == 5000
        assert sum(n.total_ns for n in shard.nodes) == 10_000
        assert rig.fold().balances[0].exclusive_ns == 10_000
    finally:
        rig.close()


def test_wrong_arguments_are_refused_like_any_function(rig):
    with pytest.raises(TypeError):
        rig.module.profile()
    with pytest.raises(TypeError):
        rig.module.profile("x", nonsense=True)
    with pytest.raises(TypeError):
        rig.module.profile("x", name="y")


def test_zones_are_shared_by_name(rig):
    assert rig.module.profile("same") is rig.module.profile("sa" + "me"[:])
    assert rig.module.profile("same").name == "same"


def test_a_span_that_is_open_is_shown_with_its_start(rig):
    rig.enter("a")
    rig.tick(10)
    rig.enter("b")
    rig.tick(5)
    shard = rig.read()
    assert [(shard.label_of(s.path).name, s.start_ns) for s in shard.open_spans] == [("a", 1000), ("b", 1010)]
    assert rig.operation("a").busy_ns == 15
    assert rig.operation("a").open == 1
    assert rig.operation("b").union_ns == 5


def test_the_histogram_of_a_very_long_span_stays_in_range(rig):
    rig.span("x", 1 << 55)
    assert rig.node("x").histogram[159] == 1
