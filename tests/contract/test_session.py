from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hotloop.model import shard as m
from hotloop.model.ledger import fold
from hotloop.store.shard import decode

from .conftest import Rig


def leave(recorder):
    """Leave a forked child; a build for coverage writes down what it has counted."""
    getattr(recorder, "dump_coverage", int)()
    os._exit(0)


def test_the_file_is_the_recording(disk_rig, tmp_path):
    disk_rig.span("x", 5)
    disk_rig.enter("open")
    disk_rig.tick(3)
    (path,) = tmp_path.iterdir()
    assert disk_rig.module.shard() == str(path)
    from_disk, live = decode(path.read_bytes()), disk_rig.read()
    assert from_disk.nodes[: len(live.nodes)] != ()
    assert [n.count for n in from_disk.nodes] == [n.count for n in live.nodes]
    assert not from_disk.ended
    disk_rig.module.close()
    ended = decode(path.read_bytes())
    assert ended.ended
    assert ended.losses == {"cut": 1}
    assert fold([ended]).balances[0].lifetime_ns == 8


def test_nothing_is_recorded_before_or_after(recorder):
    rig = Rig(recorder)
    assert not recorder.is_on()
    rig.span("before", 1)
    recorder.step()
    recorder.count("env_steps", 1)
    rig.open()
    assert recorder.is_on()
    rig.span("during", 1)
    names = {label.name for label in rig.read().labels}
    rig.close()
    assert not recorder.is_on()
    rig.span("after", 1)
    assert recorder.snapshot() == b""
    assert "during" in names
    assert "before" not in names
    assert recorder.here() is None
    assert recorder.depth() == 0


def test_a_pause_is_not_part_of_the_lifetime(rig):
    rig.enter("x")
    rig.tick(10)
    rig.module.pause()
    assert not rig.module.is_on()
    rig.tick(1000)
    rig.span("while paused", 5)
    rig.exit("x")
    rig.module.resume()
    rig.tick(7)
    rig.span("x", 3)
    shard = rig.read()
    assert fold([shard]).balances[0].lifetime_ns == 20
    assert shard.paused_ns == 1005
    assert rig.operation("x").calls == 2
    assert rig.operation("x").union_ns == 13
    assert shard.losses == {"cut": 1}


def test_an_exit_after_a_pause_is_told_apart_from_a_stray_one(rig):
    rig.enter("x")
    rig.module.pause()
    rig.module.resume()
    rig.exit("x")
    assert rig.read().losses == {"cut": 1, "inherited": 1}


def test_reset_forgets_the_past_and_carries_open_spans_over(disk_rig, tmp_path):
    disk_rig.span("old", 5)
    disk_rig.enter("outer")
    disk_rig.tick(100)
    disk_rig.track(1)
    disk_rig.enter("worker")
    disk_rig.tick(10)
    disk_rig.track(-1)
    disk_rig.module.reset()
    disk_rig.tick(7)
    disk_rig.exit("outer")
    disk_rig.track(1)
    disk_rig.exit("worker")
    disk_rig.track(-1)
    shard = disk_rig.read()
    names = {o.name: (o.calls, o.busy_ns) for o in fold([shard]).operations if o.kind == m.USER}
    assert names == {"outer": (1, 7), "worker": (1, 7)}
    assert shard.epoch == 2
    assert shard.losses == {}
    assert len(list(tmp_path.iterdir())) == 1


def test_an_armed_recorder_makes_its_shard_at_the_first_span(recorder, tmp_path):
    rig = Rig(recorder, directory=str(tmp_path), armed=True).open()
    try:
        assert list(tmp_path.iterdir()) == []
        rig.exit("nothing")
        assert list(tmp_path.iterdir()) == []
        rig.span("x", 1)
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        rig.close()


@pytest.mark.parametrize("where", ["missing/folder", "file/inside"])
def test_without_a_disk_it_goes_on_in_memory(recorder, tmp_path, where):
    (tmp_path / "file").write_text("in the way")
    rig = Rig(recorder, directory=str(tmp_path / where)).open()
    try:
        rig.span("x", 4)
        assert rig.node("x").total_ns == 4
        assert recorder.disk_error() != 0
        assert recorder.shard() is None
        assert rig.read().losses["disk"] >= 1
        assert rig.read().disk_errno == recorder.disk_error()
    finally:
        rig.close()


def test_a_disk_that_fills_up_later_costs_new_labels_only(recorder, tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    rig = Rig(recorder, directory=str(folder), log_events=0).open()
    try:
        rig.span("early", 1)
        (path,) = folder.iterdir()
        path.rename(tmp_path / "moved.hls")  # every later block will be refused
        for i in range(2000):
            rig.span(f"late-{i}", 1)
            rig.span("early", 1)
        shard = rig.read()
        assert rig.operation("early").calls == 2001
        assert shard.losses["disk"] >= 1
        assert sum(n.count for n in shard.nodes) == 4001
        assert fold([shard]).balances[0].exclusive_ns == 4001
    finally:
        rig.close()


def test_a_forked_child_writes_its_own_shard_and_leaves_the_parents_alone(recorder, tmp_path):
    rig = Rig(recorder, directory=str(tmp_path)).open()
    try:
        rig.enter("outer")
        rig.span("before", 3)
        child = os.fork()
        if child == 0:
            try:
                rig.exit("outer")  # the parent's: not recorded here
                rig.enter("in child")
                rig.tick(9)
                rig.exit("in child")
                rig.exit("outer")
                recorder.close()
            finally:
                leave(recorder)
        assert os.waitpid(child, 0)[1] == 0
        rig.tick(2)
        rig.exit("outer")
        recorder.use_track(-1)
        recorder.close()
        shards = {s.pid: s for s in (decode(p.read_bytes()) for p in tmp_path.iterdir())}
        assert set(shards) == {os.getpid(), child}
        names = lambda s: {o.name: o.calls for o in fold([s]).operations if o.calls and o.kind == m.USER}
        assert names(shards[os.getpid()]) == {"outer": 1, "before": 1}
        assert names(shards[child]) == {"in child": 1}
        assert shards[child].parent_shard == shards[os.getpid()].id
        assert shards[child].ended
    finally:
        rig.close()


def test_a_forked_child_that_records_nothing_leaves_no_file(recorder, tmp_path):
    rig = Rig(recorder, directory=str(tmp_path)).open()
    try:
        rig.enter("outer")
        child = os.fork()
        if child == 0:
            rig.exit("outer")
            leave(recorder)
        os.waitpid(child, 0)
        assert len(list(tmp_path.iterdir())) == 1
    finally:
        rig.close()


def test_losses_can_be_noted_from_outside(rig):
    from hotloop.store.schema import LOSS_INDEX

    rig.module.lose(LOSS_INDEX["internal"])
    rig.module.lose(9999)
    assert rig.read().losses == {"internal": 1}


def test_memory_readings_belong_to_the_innermost_span(rig):
    rig.module.note_memory(1, 2, 3, True)  # nothing open: ignored
    rig.enter("x")
    rig.module.note_memory(100, 500, 600, True)
    rig.module.note_memory(50, 500, 700, True)
    rig.exit("x")
    rig.enter("y")
    rig.module.note_memory(10, 20, 30, False)
    rig.exit("y")
    x, y = rig.node("x"), rig.node("y")
    assert (x.rise_max_bytes, x.rise_sum_bytes, x.rss_max_bytes, x.peak_readings) == (100, 150, 700, 2)
    assert (y.rise_max_bytes, y.peak_readings, y.end_readings) == (10, 0, 1)
    shard = rig.read()
    assert [(shard.label_of(s.path).name, s.rss_bytes, s.peak_bytes) for s in shard.snapshots] == [
        ("x", 500, 600), ("x", 500, 700), ("y", 20, 30),
    ]  # fmt: skip


def test_the_process_can_be_named(rig):
    rig.module.name_process("worker 3")
    assert rig.read().name == "worker 3"


def test_settle_and_charge_give_time_to_the_profiler(rig):
    rig.enter("x")
    rig.tick(5)
    rig.module.settle()
    rig.tick(3)
    rig.module.charge()
    rig.tick(2)
    rig.exit("x")
    balance = rig.fold().balances[0]
    assert (balance.exclusive_ns, balance.profiler_ns) == (7, 3)
    assert rig.operation("x").busy_ns == 7  # the span is not to blame for it
    assert rig.node("x").max_ns == 7


def test_long_spans_are_measured_from_their_second_call_on_but_not_all_in_quick_succession(recorder):
    rig = Rig(recorder, long_ns=1000).open()
    try:
        rig.span("long", 5000)
        rig.span("long", 5000)
        rig.span("long", 4999)  # it begins too soon after the one before
        rig.span("other", 1)
        rig.span("long", 5000)
        rig.span("other", 5000)
        rig.span("short", 10)
        rig.span("short", 10)
        long, short = rig.node("long"), rig.node("short")
        assert (long.end_readings, long.cpu_wall_ns) == (2, 10_000)
        assert long.rss_max_bytes > 1 << 20
        assert short.end_readings == 0
        rig.span("long", 1)  # measured once more, then no longer
        rig.span("other", 10_000)
        rig.span("long", 1)
        assert rig.node("long").end_readings == 3
    finally:
        rig.close()


def test_closing_twice_and_pausing_while_off_are_harmless(recorder):
    recorder.close()
    recorder.close()
    recorder.pause()
    recorder.reset()
    recorder.resume()
    recorder.close()
    assert not recorder.is_on()


def test_a_hostile_working_directory_is_no_obstacle(recorder, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 50) / "näme with spaces"
    folder.mkdir(parents=True)
    rig = Rig(recorder, directory=str(folder)).open()
    try:
        rig.span("x", 1)
        monkeypatch.chdir("/")
        for i in range(300):
            rig.span(f"more {i}", 1)
        assert rig.read().losses == {}
        assert len(list(Path(folder).iterdir())) == 1
    finally:
        rig.close()


def test_a_forked_child_may_start_a_recording_of_its_own(recorder, tmp_path):
    rig = Rig(recorder, directory=str(tmp_path)).open()
    try:
        rig.span("in parent", 1)
        child = os.fork()
        if child == 0:
            try:
                recorder.close()  # before its first span: there is nothing of its own to close
                own = tmp_path / "own"
                own.mkdir()
                rig.open(directory=str(own))
                for i in range(500):
                    rig.span(f"label {i}", 2)
                recorder.close()
            finally:
                leave(recorder)
        assert os.waitpid(child, 0)[1] == 0
        (path,) = (tmp_path / "own").iterdir()
        shard = decode(path.read_bytes())
        assert (shard.pid, shard.recorded, shard.losses) == (child, 500, {})
        rig.span("in parent", 1)
        assert rig.operation("in parent").calls == 2
    finally:
        rig.close()


def test_an_exit_that_comes_in_the_next_recording_is_told_apart(rig):
    rig.enter("x")
    rig.open()
    rig.exit("x")
    rig.span("y", 1)
    assert rig.read().losses == {"inherited": 1}


def test_a_child_gets_the_childs_share(recorder, tmp_path):
    rig = Rig(
        recorder,
        directory=str(tmp_path),
        is_child=True,
        child_budget=1 << 20,
        child_ring_events=64,
        child_log_events=32,
        child_iter_units=1,
    )
    rig.open()
    try:
        recorder.name_process("env-3")
        for i in range(200):
            rig.span("x", i)
            recorder.step()
        shard = rig.read()
        assert shard.name == "env-3"
        assert shard.logged_events <= 32
        assert shard.recorded == 200
    finally:
        rig.close()
    (path,) = tmp_path.iterdir()
    assert path.stat().st_size <= 1 << 20


def test_a_tiny_budget_does_without_ring_and_rows(recorder):
    rig = Rig(recorder, budget=8 * 65536, ring_events=1 << 16, iter_units=16).open()
    try:
        rig.span("x", 3)
        recorder.step()
        rig.span("x", 3)
        shard = rig.read()
        assert shard.recorded == 2
        assert shard.iterations == ()
        assert shard.losses["budget"] >= 1
    finally:
        rig.close()


def test_no_budget_at_all_records_nothing_and_does_no_harm(recorder):
    rig = Rig(recorder, budget=65536).open()
    rig.span("x", 1)
    recorder.step()
    assert not recorder.is_on()
    recorder.close()


def test_a_thread_that_ends_while_paused_gives_its_track_up(recorder):
    import threading

    rig = Rig(recorder, clock=0).open()
    try:
        go, ready = threading.Event(), threading.Event()

        def work():
            with recorder.profile("x"):
                pass
            ready.set()
            go.wait()

        thread = threading.Thread(target=work, name="pauses")
        thread.start()
        ready.wait()
        recorder.pause()
        go.set()
        thread.join()
        recorder.resume()
        rig.span("y", 0)
        assert not next(t for t in rig.read().tracks if t.name == "pauses").alive
    finally:
        rig.close()


def test_a_string_of_another_type_is_a_name(rig):
    class Name(str):
        pass

    rig.span(Name("mine"), 2)
    rig.span("mine", 2)
    assert rig.operation("mine").calls == 2


def test_a_label_remembers_where_it_was_first_opened(rig):
    with rig.module.profile("here"):
        pass
    with rig.module.profile("here"):
        pass
    line = sys._getframe().f_lineno - 4
    for i in range(3):
        with rig.module.profile(f"made {i}"):
            pass
    sites = {label.name: label.site for label in rig.read().labels}
    assert sites["here"] == f"{__file__}:{line}"
    assert sites["made 0"] == sites["made 2"] == f"{__file__}:{line + 6}"
    rig.open()
    rig.span("here", 1)
    assert {x.name: x.site for x in rig.read().labels}["here"] == f"{__file__}:{line}", "kept in the next session"


def test_step_calls_back_and_nothing_it_does_reaches_training(rig):
    seen = []

    def callback(iterations, env_steps):
        assert env_steps == 7
        seen.append(iterations)
        if len(seen) == 2:
            raise ValueError("mine")
        if len(seen) == 3:
            raise KeyboardInterrupt

    rig.module.count("env_steps", 7)
    rig.module.set_on_step(callback)
    try:
        rig.module.step()
        rig.module.step()
        with pytest.raises(KeyboardInterrupt):
            rig.module.step()
        rig.module.set_on_step(None)
        rig.module.step()
    finally:
        rig.module.set_on_step(None)
    assert seen == [1, 2, 3]
    assert rig.read().losses == {"internal": 1}
