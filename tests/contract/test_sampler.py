"""The stack sampler of both recorders, in real time: what it sees, and that it leaves nothing behind. No speed is asserted."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hotloop.model import role as r
from hotloop.model import shard as m
from hotloop.store.shard import decode

from .conftest import Bench, Rig, path_names
from .test_session import leave

PATIENCE_S = 60


@pytest.fixture
def sampled(recorder):
    rig = Rig(recorder, clock=0, sample_us=2000).open()
    assert rig.read().samples.interval_ns, "this build cannot look at stacks"
    yield rig
    rig.close()


def functions(shard: m.Shard, sample: m.Sample) -> list[str]:
    """The functions of a sample's stack, outermost first."""
    names: list[str] = []
    stack = sample.stack
    while stack >= 0:
        stack, place = shard.samples.stacks[stack]
        names.insert(0, shard.samples.places[place].function)
    return names


def wait_for(rig: Rig, seen: Callable[[m.Shard, m.Sample], bool]) -> tuple[m.Shard, m.Sample]:
    """The first sample of that kind."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        time.sleep(0.02)
        shard = rig.read()
        for sample in shard.samples.counts:
            if seen(shard, sample):
                return shard, sample
    raise AssertionError("never seen")


def spin_here(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(200))


class Spinning:
    """A thread in a known function, in a known span."""

    def __init__(self, rig: Rig, span: str | None) -> None:
        self.rig, self.span, self.stop = rig, span, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        if self.span is None:
            spin_here(self.stop)
        else:
            with self.rig.module.profile("outer"), self.rig.module.profile(self.span):
                spin_here(self.stop)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: Any) -> None:
        self.stop.set()
        self.thread.join()


def test_a_thread_is_seen_in_its_function_and_in_its_span(sampled):
    with Spinning(sampled, "work"):
        shard, sample = wait_for(
            sampled,
            lambda shard, sample: (
                path_names(shard, sample.path) == ("outer", "work") and "spin_here" in functions(shard, sample)
            ),
        )
    names = functions(shard, sample)
    assert names.index("Spinning.run") < names.index("spin_here")
    assert sample.times >= 1
    assert sample.early, "no loop has begun"
    assert sample.track == next(t.id for t in shard.tracks if t.depth == 2)
    place = next(x for x in shard.samples.places if x.function == "spin_here")
    first = spin_here.__code__.co_firstlineno
    assert (place.file, place.first_line) == (__file__, first)
    assert first <= place.line <= first + 2
    assert shard.samples.interval_ns == 2_000_000
    assert 0 < sample.times <= shard.samples.ticks


def spin_first() -> int:
    return sum(range(10_000))


def spin_second() -> int:
    return sum(range(10_000))


def test_a_stack_and_its_span_are_of_the_same_moment(sampled):
    """The thread runs on while it is read: spans in turns must not get each other's functions."""
    belongs = {"spin_first": ("first",), "spin_second": ("second",)}
    right = wrong = 0
    deadline = time.monotonic() + PATIENCE_S
    while (right + wrong < 150 or wrong > 0.05 * (right + wrong)) and time.monotonic() < deadline:
        for _ in range(200):
            with sampled.module.profile("first"):
                spin_first()
            with sampled.module.profile("second"):
                spin_second()
        right = wrong = 0
        shard = sampled.read()
        for sample in shard.samples.counts:
            inner = functions(shard, sample)[-1]
            if inner in belongs:
                fits = path_names(shard, sample.path) == belongs[inner]
                right, wrong = right + sample.times * fits, wrong + sample.times * (not fits)
    assert right + wrong >= 150
    assert wrong <= 0.05 * (right + wrong)  # many more, where the span is asked only after the whole stack was read


def test_no_frame_of_the_recorder_is_in_a_stack(sampled):
    """Not of hooks, and not of the sampler."""
    stop = threading.Event()
    hooked = Bench(sampled).hooked(r.PRINT, spin_here)
    thread = threading.Thread(target=lambda: hooked(stop))
    thread.start()
    try:
        shard, sample = wait_for(sampled, lambda shard, sample: path_names(shard, sample.path) == ("log/print",))
    finally:
        stop.set()
        thread.join()
    assert [name for name in functions(shard, sample) if "Hooked" in name or "Sampler" in name] == []
    assert {os.path.basename(os.path.dirname(x.file)) for x in shard.samples.places} & {"twin", "native"} == set()


def test_a_thread_without_spans_is_seen_too(sampled):
    with Spinning(sampled, None):
        _, sample = wait_for(sampled, lambda shard, sample: "spin_here" in functions(shard, sample))
    assert (sample.track, sample.path) == (-1, 0)


def test_samples_say_whether_the_loop_had_begun(sampled):
    bench = Bench(sampled)
    bench.patches.hooked(len, r.OPTIMIZER)([])
    with Spinning(sampled, "work"):
        _, sample = wait_for(sampled, lambda shard, sample: "spin_here" in functions(shard, sample) and not sample.early)
    assert not sample.early


def test_threads_keep_their_tracks_over_a_reset(sampled):
    with Spinning(sampled, "work"):
        wait_for(sampled, lambda shard, sample: "spin_here" in functions(shard, sample))
        sampled.module.reset()
        shard, sample = wait_for(sampled, lambda shard, sample: path_names(shard, sample.path) == ("outer", "work"))
    assert "spin_here" in functions(shard, sample)
    assert shard.tracks[sample.track].name.startswith("Thread-")


def tasks() -> set[str]:
    """The threads of this process, as the kernel numbers them."""
    return set(os.listdir("/proc/self/task"))


def wait_until_gone(threads: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while threads & tasks():
        assert time.monotonic() < deadline, "a thread is left"
        time.sleep(0.005)


def test_the_sampler_ends_with_the_recording_and_leaves_no_thread(recorder):
    before = tasks()
    rig = Rig(recorder, clock=0, sample_us=1000).open()
    made = tasks() - before
    assert len(made) == bool(rig.read().samples.interval_ns)
    rig.close()
    wait_until_gone(made)
    rig.open(sample_us=0)
    time.sleep(0.02)
    assert rig.read().samples == m.Samples()
    assert tasks() <= before
    rig.close()


def test_nothing_is_sampled_while_recording_is_paused(sampled):
    wait_for(sampled, lambda shard, sample: True)
    sampled.module.pause()
    time.sleep(0.01)  # a look that was under way
    ticks = sampled.read().samples.ticks
    time.sleep(0.05)
    assert sampled.read().samples.ticks == ticks
    sampled.module.resume()
    wait_for(sampled, lambda shard, sample: shard.samples.ticks > ticks)


def test_there_is_no_sampler_where_time_is_moved_by_hand(recorder):
    before = len(sys._current_frames())
    rig = Rig(recorder, sample_us=1000).open()
    assert rig.read().samples == m.Samples()
    assert len(sys._current_frames()) == before
    rig.close()


def test_a_budget_without_room_for_samples_records_all_the_same(recorder):
    rig = Rig(recorder, clock=0, sample_us=1000, budget=4 << 20).open()
    try:
        with recorder.profile("x"):
            pass
        assert rig.node("x").count == 1
        assert rig.read().samples == m.Samples()
    finally:
        rig.close()


def test_a_forked_child_has_a_sampler_of_its_own(recorder, tmp_path):
    rig = Rig(recorder, clock=0, directory=str(tmp_path), sample_us=2000, child_sample_us=1000).open()
    try:
        assert rig.read().samples.interval_ns, "this build cannot look at stacks"
        wait_for(rig, lambda shard, sample: True)
        child = os.fork()
        if not child:
            try:
                with recorder.profile("in child"):
                    wait_for(rig, lambda shard, sample: path_names(shard, sample.path) == ("in child",))
                recorder.close()
            finally:
                leave(recorder)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        rig.close()
    shards = {shard.pid: shard for shard in (decode(file.read_bytes()) for file in tmp_path.iterdir())}
    assert {shards[child].samples.interval_ns, shards[os.getpid()].samples.interval_ns} == {1_000_000, 2_000_000}
    assert any(path_names(shards[child], x.path) == ("in child",) for x in shards[child].samples.counts)


# ---- what a thread does ----

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's clocks and states of threads")


def block_here(out: int) -> None:
    """Blocked in C, where no hook knows of it."""
    ctypes.CDLL(None).read(out, ctypes.create_string_buffer(1), 1)


def lock_here(lock: Any) -> None:
    lock.acquire()


@contextmanager
def blocked_thread() -> Iterator[None]:
    out, into = os.pipe()
    thread = threading.Thread(target=block_here, args=(out,))
    thread.start()
    try:
        yield
    finally:
        os.write(into, b"x")
        thread.join()
        os.close(out)
        os.close(into)


def is_seen(function: str, *states: int) -> Callable[[m.Shard, m.Sample], bool]:
    return lambda shard, sample: sample.state in states and function in functions(shard, sample)


@on_linux
def test_a_thread_that_computes_is_seen_running(sampled):
    with Spinning(sampled, None):
        assert wait_for(sampled, is_seen("spin_here", m.RUNNING))


@on_linux
def test_a_thread_blocked_in_c_is_seen_blocked(sampled):
    with blocked_thread():
        _, sample = wait_for(sampled, is_seen("block_here", m.BLOCKED))
    assert not sample.holds_gil


@on_linux
def test_a_thread_blocked_in_a_lock_is_seen_blocked(sampled):
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock_here, args=(lock,))
    thread.start()
    try:
        _, sample = wait_for(sampled, is_seen("lock_here", m.BLOCKED))
    finally:
        lock.release()
        thread.join()
    assert not sample.holds_gil


@on_linux
def test_two_threads_that_compute_run_or_want_the_interpreter(sampled, recorder):
    with Spinning(sampled, None), Spinning(sampled, None):
        wait_for(sampled, is_seen("spin_here", m.RUNNING))
        if recorder.__name__.endswith("_zone"):  # the Python recorder has the interpreter itself when it looks
            _, sample = wait_for(sampled, is_seen("spin_here", m.WANTS_GIL))
            assert not sample.holds_gil
            wait_for(sampled, lambda shard, sample: sample.holds_gil and "spin_here" in functions(shard, sample))


@on_linux
def test_one_stack_in_two_states_is_two_samples_and_both_count(sampled):
    """Of a thread that sleeps and works in turns, at one line."""
    stop = threading.Event()

    def turn_here() -> None:
        while not stop.is_set():
            hashlib.sha256(block), time.sleep(0.05)

    block = bytes(20_000_000)
    thread = threading.Thread(target=turn_here)
    thread.start()
    name = turn_here.__qualname__
    try:
        wait_for(sampled, is_seen(name, m.RUNNING))
        shard, blocked = wait_for(sampled, is_seen(name, m.BLOCKED))
    finally:
        stop.set()
        thread.join()
    seen = [x for x in shard.samples.counts if name in functions(shard, x)]
    assert {m.RUNNING, m.BLOCKED} <= {x.state for x in seen}
    assert 0 < blocked.times < sum(x.times for x in seen) <= shard.samples.ticks + 1


# ---- descriptors ----


def descriptors() -> dict[int, str]:
    """Those of the kernel's states of threads, with the file each stands for."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            file = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # the one that lists them
            continue
        if file.endswith("/syscall"):
            found[int(fd)] = file
    return found


@on_linux
def test_no_descriptor_is_left_by_threads_that_end_nor_by_the_recording(recorder):
    rig = Rig(recorder, clock=0, sample_us=1000).open()
    try:
        for _ in range(5):
            with blocked_thread():
                wait_for(rig, is_seen("block_here", m.BLOCKED))
                during = descriptors()
                assert len(during) <= len(tasks())
        deadline = time.monotonic() + PATIENCE_S
        while len(descriptors()) > len(sys._current_frames()):  # also threads that `threading` does not know
            assert time.monotonic() < deadline, "those of ended threads are left"
            time.sleep(0.005)
    finally:
        rig.close()
    assert descriptors() == {}


@on_linux
def test_a_forked_child_keeps_none_of_its_parents_descriptors(recorder, tmp_path):
    rig = Rig(recorder, clock=0, directory=str(tmp_path), sample_us=1000, child_sample_us=1000).open()
    try:
        wait_for(rig, lambda shard, sample: sample.state != m.UNKNOWN)
        child = os.fork()
        if not child:
            try:
                with recorder.profile("in child"):
                    wait_for(rig, lambda shard, sample: sample.state != m.UNKNOWN)
                assert all(file.startswith(f"/proc/{os.getpid()}/") for file in descriptors().values())
                recorder.close()
                assert descriptors() == {}
            finally:
                leave(recorder)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        rig.close()


@on_linux
def test_a_descriptor_the_program_took_over_is_left_alone(recorder, tmp_path):
    """As by a program that closes everything it does not know and opens files of its own."""
    text = b"202 0x1 0x2\n" * 30
    (tmp_path / "own").write_bytes(text)
    rig = Rig(recorder, clock=0, sample_us=1000).open()
    try:
        with blocked_thread():
            wait_for(rig, is_seen("block_here", m.BLOCKED))
            taken = list(descriptors())
            for fd in taken:
                os.close(fd)
                own = os.open(tmp_path / "own", os.O_RDONLY)
                if own != fd:
                    os.dup2(own, fd)
                    os.close(own)
            ticks = rig.read().samples.ticks
            wait_for(rig, lambda shard, sample: shard.samples.ticks > ticks + 20)
    finally:
        rig.close()
    assert [os.read(fd, 1000) for fd in taken] == [text] * len(taken)
    for fd in taken:
        os.close(fd)


@on_linux
def test_without_descriptors_the_processor_time_tells(recorder):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    rig = Rig(recorder, clock=0, sample_us=2000)
    with blocked_thread():
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            rig.open()
            with Spinning(rig, None):
                assert wait_for(rig, is_seen("spin_here", m.RUNNING))
                assert wait_for(rig, is_seen("block_here", m.BLOCKED))
        finally:
            rig.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
