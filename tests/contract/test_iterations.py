from __future__ import annotations

import struct

import pytest

from hotloop.model import role as r
from hotloop.model.ledger import windowed_rate
from hotloop.store import schema
from hotloop.store.shard import decode

from .conftest import Bench, Rig

MS = 1_000_000


def by_name(shard, row):
    return {shard.label_of(path).name: ns for path, ns in row.self_ns.items()}


def test_a_step_closes_an_iteration_with_its_times_and_counts(rig):
    rig.tick(4)
    rig.span("env", 10)
    rig.module.count("env_steps", 256)
    rig.module.count("env_steps")
    rig.module.step()
    rig.span("learn", 20)
    rig.module.count("updates", 2)
    rig.module.step()
    shard = rig.read()
    first, second = shard.iterations
    assert by_name(shard, first) == {"(root)": 4, "env": 10}
    assert by_name(shard, second) == {"learn": 20}
    assert (first.first, first.merged, first.end_ns - first.start_ns) == (0, 1, 14)
    assert first.counts == {"env_steps": 257}
    assert second.counts == {"updates": 2}
    assert shard.counters["env_steps"] == 257
    assert shard.iterations_closed == 2


def test_a_span_open_over_a_step_is_split_between_the_iterations(rig):
    rig.enter("training_total")
    rig.tick(10)
    rig.module.step()
    rig.tick(5)
    rig.module.step()
    rig.exit("training_total")
    shard = rig.read()
    assert [by_name(shard, row) for row in shard.iterations] == [{"training_total": 10}, {"training_total": 5}]


def test_an_iteration_is_process_wide(rig):
    rig.enter("main")
    rig.tick(1)
    rig.track(1)
    rig.enter("worker")
    rig.tick(10)
    rig.module.step()  # from the other thread
    rig.track(-1)
    rig.tick(3)
    rig.exit("main")
    rig.module.step()
    shard = rig.read()
    assert by_name(shard, shard.iterations[0]) == {"main": 11, "worker": 10}
    assert by_name(shard, shard.iterations[1]) == {"main": 3, "worker": 3}


def test_a_full_table_merges_neighbours_and_keeps_every_sum(recorder):
    rig = Rig(recorder, iter_units=1, budget=16 << 20).open()
    try:
        names = [f"row-label-{i}" for i in range(40)]
        total, steps = dict.fromkeys(names, 0), 1500
        for i in range(steps):
            for name in names[: 1 + i % 40]:
                rig.span(name, 1 + i % 3)
                total[name] += 1 + i % 3
            rig.module.count("env_steps", i)
            rig.module.step()
        shard = rig.read()
        assert shard.iterations_closed == steps
        assert len(shard.iterations) < steps
        assert sum(row.merged for row in shard.iterations) == steps
        assert sum(row.counts.get("env_steps", 0) for row in shard.iterations) == steps * (steps - 1) // 2
        at = 0
        sums = dict.fromkeys(names, 0)
        for row in shard.iterations:
            assert row.first == at
            at += row.merged
            for path, ns in row.self_ns.items():
                if shard.label_of(path).name in sums:
                    sums[shard.label_of(path).name] += ns
        assert sums == total
        for before, after in zip(shard.iterations, shard.iterations[1:], strict=False):
            assert before.end_ns == after.start_ns
    finally:
        rig.close()


def test_an_iteration_with_more_paths_than_fit_keeps_its_time(recorder):
    rig = Rig(recorder, iter_units=1, budget=28 << 20).open()
    try:
        for i in range(3000):
            rig.span(f"wide-{i}", 1)
        rig.module.step()
        shard = rig.read()
        assert sum(shard.iterations[0].self_ns.values()) == 3000
        assert shard.losses["iteration_overflow"] > 0
    finally:
        rig.close()


def test_reserved_counters_come_first_and_there_is_an_end(rig):
    assert list(rig.read().counters) == ["env_steps", "updates", "samples", "episodes", "resets", "autoresets"]
    for i in range(70):
        rig.module.count(f"counter {i}", -3)
    shard = rig.read()
    assert len(shard.counters) == 64
    assert shard.counters["counter 7"] == -3
    assert shard.losses["counter_overflow"] == 70 - 58


def test_count_takes_any_whole_number_and_survives_nonsense(rig):
    class Scalar:
        def __int__(self):
            return 8

    rig.module.count("n", Scalar())
    rig.module.count("n", n=True)
    rig.module.count("n", "many")
    rig.module.count("n", 1 << 80)
    rig.module.count(17, 3)
    shard = rig.read()
    assert shard.counters["n"] == 9
    assert shard.losses["bad_name"] == 3


def test_the_training_loop_is_bounded_by_work(rig):
    rig.tick(100)
    rig.module.count("env_steps", 1)
    rig.tick(50)
    rig.module.count("updates")
    rig.tick(100)
    shard = rig.read()
    assert (shard.first_work_ns, shard.last_work_ns) == (1100, 1150)


def test_steps_per_second_look_at_the_latest_iterations_only(rig):
    second = 1_000_000_000
    for per_second in (10, 10, 10, 1000, 1000, 1000, 1000, 1000):
        rig.module.count("env_steps", per_second)
        rig.tick(second)
        rig.module.step()
    assert windowed_rate(rig.read().iterations, "env_steps") == pytest.approx(1000)
    assert windowed_rate(rig.read().iterations, "updates") is None


def test_events_are_kept_in_windows_and_the_ring_holds_the_latest(recorder):
    rig = Rig(recorder, log_events=256, ring_events=64).open()
    try:
        for i in range(45):
            for _ in range(30):
                rig.span("x", 1)
            rig.module.step()
            del i
        shard = rig.read()
        # iterations 0 (at most half), 1, 2, 10, 20, 40 (a sixteenth each)
        assert shard.logged_events == 30 + 5 * 16
        assert shard.ring_events == 45 * 30 - shard.logged_events
    finally:
        rig.close()


def test_a_pause_is_no_part_of_the_iteration_it_falls_into(rig):
    rig.span("a", 10)
    rig.module.pause()
    rig.tick(1000)
    rig.module.resume()
    rig.module.attach()
    rig.span("a", 20)
    rig.module.step()
    (row,) = rig.read().iterations
    assert row.end_ns - row.start_ns == 30


# ---- those that close themselves ----


@pytest.fixture
def loop(disk_rig):
    return Bench(disk_rig)


def took(shard, row):
    return {name: ns for name, ns in by_name(shard, row).items() if ns}


def ended(bench, folder):
    """The shard as the recorder leaves it; every row adds up to its time."""
    bench.module.use_track(-1)
    bench.module.close()
    (file,) = folder.iterdir()
    shard = decode(file.read_bytes())
    assert shard.problems == ()
    at = 0
    for row in shard.iterations:
        assert sum(row.self_ns.values()) == row.end_ns - row.start_ns
        assert row.first == at
        at += row.merged
    assert shard.iterations_closed == at
    return shard


@pytest.mark.parametrize("ms", [1, 30])
def test_every_alternation_of_collecting_and_learning_is_one(loop, tmp_path, ms):
    env, update = loop.env(ns=ms * MS), loop.hooked(r.OPTIMIZER)
    for _ in range(5):
        for _ in range(3):
            env.step()
        for _ in range(2):
            update(ms * MS)
    shard = ended(loop, tmp_path)
    assert shard.iterations_closed == 5
    assert sum(row.counts["env_steps"] for row in shard.iterations) == 15
    assert sum(row.end_ns - row.start_ns for row in shard.iterations) == 5 * 5 * ms * MS


def test_the_last_row_ends_with_the_last_work(loop, tmp_path):
    """What the script does then (evaluate, save, print, close) is in none; it has the labels it had before."""
    env, update, save = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER), loop.hooked(r.SAVE)
    write, evaluate = loop.hooked(r.PRINT), loop.hooked(r.EVALUATE, lambda: [env.step() for _ in range(3)])
    for _ in range(3):
        env.step()
        loop.tick(2 * MS)
        update(5 * MS)
        write(MS)
    write(40 * MS)
    evaluate()
    save(50 * MS)
    loop.tick(60 * MS)
    loop.rig.span("mine", 70 * MS)
    shard = ended(loop, tmp_path)
    first, second, last = shard.iterations
    assert shard.iterations_closed == 3
    assert [row.end_ns - row.start_ns for row in shard.iterations] == [38 * MS, 38 * MS, 37 * MS]
    assert last.end_ns == shard.last_work_ns
    assert took(shard, second) == {
        "Env.step": 30 * MS,
        "learn/other after collect": 2 * MS,
        "learn/optimizer": 5 * MS,
        "log/print": MS,
    }
    assert took(shard, last) == {"Env.step": 30 * MS, "learn/other after collect": 2 * MS, "learn/optimizer": 5 * MS}
    names = {shard.label_of(path).name: calls for path, calls in last.calls.items() if calls}
    assert names == {"Env.step": 1, "collect/env_step": 1, "learn/optimizer": 1}
    assert took(shard, first).keys() == took(shard, second).keys()


def test_spans_around_the_loop_end_with_the_last_work_too(loop, tmp_path):
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    loop.rig.enter("training")
    for _ in range(2):
        env.step()
        update(5 * MS)
        loop.tick(MS)
    loop.tick(100 * MS)
    shard = ended(loop, tmp_path)
    assert [row.end_ns - row.start_ns for row in shard.iterations] == [36 * MS, 35 * MS]
    assert took(shard, shard.iterations[1]) == {"Env.step": 30 * MS, "learn/optimizer": 5 * MS}


def test_other_threads_end_with_the_last_work_too(loop, tmp_path):
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    env.step()
    loop.rig.track(1)
    loop.rig.enter("worker")
    loop.rig.track(-1)
    for _ in range(2):
        env.step()
        update(5 * MS)
    loop.tick(100 * MS)
    loop.module.use_track(-1)
    loop.module.close()
    (file,) = tmp_path.iterdir()
    shard = decode(file.read_bytes())
    last = shard.iterations[-1]
    assert last.end_ns == shard.last_work_ns
    assert took(shard, last) == {"Env.step": 30 * MS, "learn/optimizer": 5 * MS, "worker": 35 * MS}


def test_without_learning_the_last_episode_ends_the_last_one(loop, tmp_path):
    playing, over = loop.env(ns=30 * MS), loop.env((0, 1.0, True, {}), ns=30 * MS)
    for _ in range(3):
        playing.step()
        over.step()
    shard = ended(loop, tmp_path)
    assert shard.iterations_closed == 3


def test_a_last_one_without_learning_is_none(loop, tmp_path):
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    for _ in range(2):
        env.step()
        update(5 * MS)
    env.step()
    assert ended(loop, tmp_path).iterations_closed == 2


def test_short_ones_at_the_end_are_in_the_last_row(loop, tmp_path):
    env, update = loop.env(ns=MS), loop.hooked(r.OPTIMIZER)
    for _ in range(17):
        env.step()
        update(MS)
    env.step()
    shard = ended(loop, tmp_path)
    assert [(row.first, row.merged) for row in shard.iterations] == [(0, 10), (10, 7)]
    assert shard.iterations[-1].end_ns == shard.last_work_ns


def test_steps_of_an_evaluation_begin_no_iteration(loop, tmp_path):
    env, update = loop.env(ns=MS), loop.hooked(r.OPTIMIZER)
    evaluate = loop.hooked(r.EVALUATE, lambda: [env.step() for _ in range(3)])
    for _ in range(4):
        env.step()
        update(MS)
        evaluate()
        update(MS)
    assert ended(loop, tmp_path).iterations_closed == 4


def test_by_hand_the_last_one_is_not_closed(loop, tmp_path):
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    for _ in range(3):
        env.step()
        update(5 * MS)
        loop.module.step()
    env.step()
    update(5 * MS)
    assert ended(loop, tmp_path).iterations_closed == 3


def test_a_pause_before_the_end_is_in_no_row(loop, tmp_path):
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    for _ in range(2):
        env.step()
        update(5 * MS)
    loop.module.pause()
    loop.tick(1000 * MS)
    loop.module.resume()
    loop.module.attach()
    loop.rig.span("mine", 7 * MS)
    shard = ended(loop, tmp_path)
    assert [row.end_ns - row.start_ns for row in shard.iterations] == [35 * MS, 35 * MS]
    assert took(shard, shard.iterations[1]) == {"Env.step": 30 * MS, "learn/optimizer": 5 * MS}


def test_a_wait_that_began_in_an_earlier_row_spoils_none(loop, tmp_path):
    """A worker waits for more work while the last rows are written; at the end its wait is no part of the loop."""
    env, update = loop.env(ns=30 * MS), loop.hooked(r.OPTIMIZER)
    env.step()
    loop.rig.track(1)
    env.step()

    def go_on() -> None:
        loop.rig.track(-1)
        for _ in range(3):
            env.step()
            update(5 * MS)
        loop.tick(100 * MS)
        loop.module.use_track(-1)
        loop.module.close()

    loop.patches.waiting(go_on, "queue")()
    (file,) = tmp_path.iterdir()
    shard = decode(file.read_bytes())
    assert shard.problems == ()
    assert shard.iterations_closed == 3
    last = took(shard, shard.iterations[-1])
    assert last == {"Env.step": 30 * MS, "learn/optimizer": 5 * MS, "(waiting: queue)": 35 * MS}


def test_a_row_that_was_written_but_not_yet_counted_counts(loop):
    """A process may be killed between the two words; the row can stand for several iterations."""
    env, update = loop.env(ns=4 * MS), loop.hooked(r.OPTIMIZER)
    for _ in range(7):
        env.step()
        update(4 * MS)
    data = bytearray(loop.module.snapshot())
    (row, second) = decode(bytes(data)).iterations
    assert (row.merged, second.merged) == (3, 3)
    struct.pack_into("<Q", data, 8 * schema.H_ITERATIONS, 3)
    shard = decode(bytes(data))
    assert (shard.iterations_closed, shard.problems) == (6, ())
    struct.pack_into("<Q", data, 8 * schema.H_ITERATIONS, 2)
    assert decode(bytes(data)).problems != ()
