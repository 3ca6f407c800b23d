from __future__ import annotations

import pytest

from hotloop.model.ledger import windowed_rate

from .conftest import Rig


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
    assert list(rig.read().counters)[:5] == ["env_steps", "updates", "samples", "episodes", "resets"]
    for i in range(70):
        rig.module.count(f"counter {i}", -3)
    shard = rig.read()
    assert len(shard.counters) == 64
    assert shard.counters["counter 7"] == -3
    assert shard.losses["counter_overflow"] == 70 - 59


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
