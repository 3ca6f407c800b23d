from __future__ import annotations

import random

import pytest

from hotloop.model import shard as m

from .conftest import Rig, native


def test_two_threads_never_exceed_wall_time(rig):
    rig.enter("env")
    rig.tick(10)
    rig.track(1)
    rig.enter("env")
    rig.tick(10)
    rig.exit("env")
    rig.track(-1)
    rig.tick(5)
    rig.exit("env")
    operation = rig.operation("env")
    assert (operation.union_ns, operation.busy_ns) == (25, 35)
    assert operation.concurrency == pytest.approx(35 / 25)
    assert operation.tracks == 2


def test_seed_002_eight_threads_205_seconds_busy_in_18(rig):
    """205.6 s of env_step in 18.6 s of wall time read 1108 % in the original; it is a concurrency of 11.05, at 100 %."""
    ms = 1_000_000
    begin, busy = rig.t, 0
    plan = []
    for thread in range(16):
        at = begin + thread * 400 * ms
        while at < begin + 18_600 * ms:
            end = min(at + 950 * ms, begin + 18_600 * ms)
            plan += [(at, 1, thread), (end, 0, thread)]
            busy += end - at
            at = end + 50 * ms
    for at, opens, thread in sorted(plan):
        rig.tick(at - rig.t)
        rig.track(thread)
        (rig.enter if opens else rig.exit)("env_step")
    rig.track(-1)
    operation = rig.operation("env_step")
    assert operation.busy_ns == busy
    assert operation.union_ns == 18_600 * ms
    assert operation.union_ns <= rig.t - begin
    assert operation.concurrency == pytest.approx(busy / 18_600 / ms)
    assert operation.concurrency > 11


def brute_force(intervals):
    """Union of intervals by walking their end points."""
    covered, depth, since = 0, 0, 0
    for at, change in sorted([(b, 1) for b, _ in intervals] + [(e, -1) for _, e in intervals], key=lambda x: (x[0], -x[1])):
        if depth == 0:
            since = at
        depth += change
        if depth == 0:
            covered += at - since
    return covered


def random_forest(rig, seed, threads=8, steps=40, labels="abcd"):
    """Drive random spans on several threads; answers what must come out, from the intervals alone."""
    rng = random.Random(seed)
    stacks = {i: [] for i in range(threads)}
    intervals = {name: [] for name in labels}
    busy = dict.fromkeys(labels, 0)
    calls = dict.fromkeys(labels, 0)
    exclusive = dict.fromkeys(labels, 0)
    first_seen, last = {}, {}

    def account(thread):
        top = stacks[thread][-1][0] if stacks[thread] else None
        if thread in last and top:
            exclusive[top] += rig.t - last[thread]
        last[thread] = rig.t

    def leave(thread):
        account(thread)
        name, start = stacks[thread].pop()
        calls[name] += 1
        if name not in [n for n, _ in stacks[thread]]:
            intervals[name].append((start, rig.t))
            busy[name] += rig.t - start
        rig.exit(name)

    for _ in range(steps):
        rig.tick(rng.choice((0, 1, 2, 5, 100)))
        thread = rng.randrange(threads)
        rig.track(thread)
        first_seen.setdefault(thread, rig.t)
        stack = stacks[thread]
        if stack and rng.random() < 0.5:
            leave(thread)
        else:
            account(thread)
            name = rng.choice(labels)
            rig.enter(name)
            stack.append((name, rig.t))
    for thread, stack in stacks.items():
        rig.track(thread)
        while stack:
            rig.tick(rng.choice((0, 3)))
            leave(thread)
    rig.track(-1)
    return {name: (calls[name], busy[name], exclusive[name], brute_force(intervals[name])) for name in labels if calls[name]}


def check_forest(rig, seed):
    rig.open()
    expected = random_forest(rig, seed)
    ledger = rig.fold()
    got = {o.name: (o.calls, o.busy_ns, o.self_ns, o.union_ns) for o in ledger.operations if o.kind == m.USER and o.calls}
    assert got == expected, seed
    shard = rig.read()
    assert sum(t.entered for t in shard.tracks) == sum(c for c, *_ in expected.values())
    for balance, track in zip(ledger.balances, shard.tracks, strict=True):
        assert balance.lifetime_ns == track.lifetime_ns


def test_random_span_forests_match_brute_force(rig):
    for seed in range(300 if rig.module.NATIVE else 100):
        check_forest(rig, seed)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("recorder", [native], ids=["native"])  # the Python one runs the sample above
def test_a_hundred_thousand_random_span_forests_match_brute_force(rig):
    for seed in range(100_000):
        check_forest(rig, seed)


def test_a_track_is_reused_after_its_thread_ended(rig):
    rig.track(1)
    rig.span("x", 10)
    rig.enter("left open")
    rig.tick(5)
    rig.module.end_track()
    rig.tick(100)
    rig.span("x", 10)
    rig.track(-1)
    shard = rig.read()
    assert shard.losses["abandoned"] == 1
    track = next(t for t in shard.tracks if t.name == "virtual-1")
    assert track.lifetime_ns == 10 + 5 + 100 + 10
    assert rig.node("x", track=track.id).count == 2


def test_the_books_of_every_track_close_exactly(rig):
    for thread in range(5):
        rig.track(thread)
        rig.tick(7)
        rig.enter("outer")
        rig.tick(3)
        rig.enter("inner")
        rig.tick(11)
    rig.track(-1)
    rig.tick(1)
    shard, ledger = rig.read(), rig.fold()
    for balance, track in zip(ledger.balances, shard.tracks, strict=True):
        parts = balance.exclusive_ns + balance.waiting_ns + balance.unattributed_ns + balance.profiler_ns
        assert parts == track.lifetime_ns
        assert track.end_ns == rig.t


def test_own_cost_is_taken_from_where_it_arises(recorder):
    rig = Rig(recorder, costs=(2_000, 3_000, 100)).open()  # 2 ns inside, 3 ns outside
    try:
        rig.enter("outer")
        for _ in range(10):
            rig.tick(10)
            rig.span("inner", 20)
        rig.exit("outer")
        ledger = rig.fold()
        inner = next(o for o in ledger.operations if o.name == "inner")
        outer = next(o for o in ledger.operations if o.name == "outer")
        assert inner.self_ns == 10 * (20 - 2)
        assert inner.busy_ns == 10 * (20 - 2)
        assert outer.self_ns == 10 * 10 - 2 - 10 * 3
        assert outer.busy_ns == outer.self_ns + inner.self_ns
        balance = ledger.balances[0]
        assert balance.profiler_ns == 10 * 5 + 2
        assert balance.lifetime_ns == 300
    finally:
        rig.close()
