"""The same recorders with the real clock, real threads and real waits."""

from __future__ import annotations

import gc
import pickle
import resource
import select
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue, SimpleQueue

import pytest

from hotloop.model import shard as m
from hotloop.model.ledger import fold

from .conftest import Rig, native, twin

KERNEL = 1


@pytest.fixture(params=[0, KERNEL], ids=["best clock", "kernel clock"])
def real(recorder, request):
    rig = Rig(recorder, clock=request.param).open()
    rig.forget_earlier()
    yield rig
    recorder.unhook_waits()
    rig.close()


def test_time_passes_as_the_kernel_says(real):
    real.enter("x")
    begin = time.perf_counter_ns()
    time.sleep(0.02)
    took = time.perf_counter_ns() - begin
    real.exit("x")
    assert real.node("x").total_ns == pytest.approx(took, rel=0.02)
    assert abs(real.module.now() - time.monotonic_ns()) < 5_000_000


def test_the_clock_keeps_up_over_a_second(real):
    real.span("x", 0)
    time.sleep(1.1)
    apart = min(abs(real.module.now() - time.monotonic_ns()) for _ in range(50))  # we may be preempted between the two
    assert apart < 200_000
    real.enter("y")
    real.exit("y")
    assert real.read().losses == {}


def test_threads_get_tracks_by_name_and_give_them_back(real):
    def work():
        with real.module.profile("work"):
            time.sleep(0.001)

    for _ in range(3):
        threads = [threading.Thread(target=work, name=f"env-{i}") for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    gc.collect()
    shard = real.read()
    tracks = [t for t in shard.tracks if t.name.startswith("env-")]
    assert 1 <= len(tracks) <= 4
    assert sum(t.threads for t in tracks) == 12
    assert not any(t.alive for t in tracks)
    assert real.operation("work").calls == 12
    assert {t.name for t in shard.tracks} >= {"MainThread"}


def test_a_thread_that_ends_with_a_span_open_abandons_it(real):
    thread = threading.Thread(target=lambda: real.enter("never closed"), name="careless")
    thread.start()
    thread.join()
    gc.collect()
    assert real.read().losses == {"abandoned": 1}
    assert real.operation("never closed").calls == 1


def test_a_thread_without_a_python_name_is_recorded(real):
    import _thread

    done = threading.Event()

    def work():
        with real.module.profile("nameless"):
            pass
        done.set()

    _thread.start_new_thread(work, ())
    done.wait()
    assert real.operation("nameless").calls == 1


def test_threads_outlive_a_recording(real):
    go, stop = threading.Event(), threading.Event()

    def work():
        while not stop.is_set():
            with real.module.profile("loop"):
                time.sleep(0.001)
            go.set()

    thread = threading.Thread(target=work)
    thread.start()
    go.wait()
    for _ in range(3):
        real.open()
        go.clear()
        go.wait()
        go.clear()
        go.wait()
        assert real.operation("loop").calls >= 1
        assert set(real.read().losses) <= {"inherited"}
    real.module.close()
    stop.set()
    thread.join()
    real.open()


def test_a_span_that_begins_while_another_recording_does_is_in_neither():
    """Between the look whether it is recorded and its place in the tree, another thread opens the next recording."""
    rig = Rig(twin, clock=0).open()
    whole = twin.tree.state.lock

    class Meanwhile:
        done = False

        def __enter__(self):
            if not self.done and threading.current_thread() is threading.main_thread():
                Meanwhile.done = True
                other = threading.Thread(target=rig.open)
                other.start()
                other.join()
            return whole.__enter__()

        def __exit__(self, *error):
            return whole.__exit__(*error)

    try:
        with twin.profile("outer"), twin.profile("inner"):
            twin.tree.state.lock = Meanwhile()
            with twin.profile("third"):
                assert Meanwhile.done
        twin.tree.state.lock = whole
        with twin.profile("after"):
            pass
        shard = rig.read()
        assert shard.problems == () and set(shard.losses) <= {"inherited"}
        assert rig.operation("after").calls == 1
    finally:
        twin.tree.state.lock = whole
        rig.close()


def test_a_span_that_ends_while_another_thread_ends_the_recording_is_closed_once(monkeypatch):
    rig = Rig(twin, clock=0).open()
    bucket_of, paused = twin.spans.bucket_of, []

    def meanwhile(duration):
        if not paused:
            paused.append(threading.Thread(target=twin.pause))
            paused[0].start()
            paused[0].join()
        return bucket_of(duration)

    try:
        with monkeypatch.context() as patched, twin.profile("outer"), twin.profile("inner"):
            patched.setattr(twin.spans, "bucket_of", meanwhile)
        shard = rig.read()
        assert paused and shard.problems == ()
        assert rig.operation("inner").calls == 1
        assert rig.operation("outer").calls == 1 and shard.losses["cut"] == 1
        assert shard.open_count == 0
    finally:
        rig.close()


def test_waits_are_hooked_and_unhooked(real):
    originals = (time.sleep, select.select, socket.socket.recv)
    names = real.module.hook_waits()
    assert any(name.endswith("time.sleep") for name in names)
    assert real.module.hook_waits() == []
    with real.module.profile("sleeps"):
        time.sleep(0.01)
    real.module.unhook_waits()
    real.module.unhook_waits()
    assert (time.sleep, select.select, socket.socket.recv) == originals
    time.sleep(0.001)
    sleeps = real.operation("sleeps")
    assert 9_900_000 < sleeps.waiting_ns <= sleeps.busy_ns
    assert real.operation("(waiting: sleep)").calls == 1


def test_every_kind_of_wait(real):
    real.module.hook_waits()
    left, right = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))
    with left, right, server:
        with real.module.profile("socket"):
            left.send(b"abc")
            assert right.recv(1) == b"a"
            left.sendall(b"d")
            buffer = bytearray(1)
            right.recv_into(buffer)
            right.recvfrom(1)
        with real.module.profile("connection"):
            client = socket.socket()
            client.connect(server.getsockname())
            connection, _ = server.accept()
            client.close()
            connection.close()
        with real.module.profile("select"):
            select.select([right], [], [], 0.001)
            poll = select.poll()
            poll.register(right)
            poll.poll(1)
            if hasattr(select, "epoll"):
                with select.epoll() as epoll:
                    epoll.poll(0.001)
    with real.module.profile("condition"):
        condition = threading.Condition()
        with condition:
            condition.wait(0.01)
    with real.module.profile("queue"):
        queue = SimpleQueue()
        threading.Timer(0.005, queue.put, [1]).start()
        queue.get()
    waits = {o.name for o in real.fold().operations if o.kind == m.WAIT and o.calls}
    assert {"(waiting: socket)", "(waiting: select)", "(waiting: lock)"} <= waits
    assert fold([real.read()]).balances[0].waiting_ns > 10_000_000


def test_of_a_wait_is_known_what_a_time_limit_ended(real):
    """And not what it was worth waiting for."""
    real.module.hook_waits()
    left, right = socket.socketpair()
    left.settimeout(0.01)
    boxes = Queue()
    with left, right, real.module.profile("late"):
        with pytest.raises(TimeoutError):
            left.recv(1)
        with pytest.raises(Empty):
            boxes.get(timeout=0.01)
        assert select.select([right], [], [], 0.01) == ([], [], [])
    with real.module.profile("in time"):
        threading.Timer(0.01, boxes.put, [1]).start()
        assert boxes.get(timeout=30) == 1
    shard = real.read()
    expired: dict[str, list[tuple[int, int]]] = {"late": [], "in time": []}
    for node in shard.nodes:
        if shard.label_of(node.path).kind == m.WAIT:
            expired[shard.label_of(shard.paths[node.path].parent).name].append((node.expired_ns, node.total_ns))
    assert len(expired["late"]) == 3
    assert all(10_000_000 <= late == pytest.approx(whole, rel=0.05) for late, whole in expired["late"])
    assert [late for late, _ in expired["in time"]] == [0]


@pytest.mark.parametrize("recorder", [native], ids=["native"])  # the Python one cannot see locks taken directly
def test_locks_are_waits_only_when_they_are_contended(real):
    real.module.hook_waits()
    lock, rlock = threading.Lock(), threading.RLock()
    with real.module.profile("free"):
        for thing in (lock, rlock):
            with thing:
                pass
            assert thing.acquire(False)
            thing.release()
            assert thing.acquire()
            thing.release()
    assert not {o.name for o in real.fold().operations if "lock" in o.name and o.calls}
    for thing in (lock, rlock):
        assert thing.acquire(timeout=1)
        thing.release()
        assert thing.acquire(blocking=True)
        thing.release()
    with pytest.raises(TypeError):
        lock.acquire(1, 2, 3)
    holder = threading.Thread(
        target=lambda: (lock.acquire(), rlock.acquire(), time.sleep(0.05), lock.release(), rlock.release())
    )
    holder.start()
    while not lock.locked():
        time.sleep(0.001)
    with real.module.profile("contended"):
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.001)
        with lock, rlock:
            pass
    holder.join()
    assert real.operation("contended").waiting_ns > 0.5 * real.operation("contended").busy_ns
    assert real.operation("(waiting: lock)").calls


def test_a_wait_in_a_thread_that_does_not_record_leaves_no_trace(real):
    real.module.hook_waits()
    thread = threading.Thread(target=time.sleep, args=(0.002,), name="silent")
    thread.start()
    thread.join()
    assert "silent" not in {t.name for t in real.read().tracks}


def test_a_wait_that_ends_after_the_recording_is_harmless(real):
    real.module.hook_waits()
    started = threading.Event()

    def work():
        with real.module.profile("x"):
            started.set()
            time.sleep(0.05)

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    time.sleep(0.01)
    real.module.close()
    thread.join()
    real.open()
    assert real.read().losses == {}


def test_getrusage_can_be_watched(real):
    seen = []
    assert real.module.hook_rusage(seen.append)
    assert real.module.hook_rusage(seen.append)  # again: the new one counts
    resource.getrusage(resource.RUSAGE_SELF)
    assert seen == [False, True]
    with pytest.raises((TypeError, ValueError)):
        resource.getrusage("nonsense")
    assert not real.module.hook_rusage(None)
    seen.clear()
    resource.getrusage(resource.RUSAGE_SELF)
    assert seen == []

    def broken(after):
        raise RuntimeError("ours")

    real.module.hook_rusage(broken)
    resource.getrusage(resource.RUSAGE_SELF)  # our fault is swallowed
    real.module.hook_rusage(None)
    assert real.read().losses == {"internal": 2}


@pytest.mark.parametrize("on", [True, False])
def test_a_wrapped_function_is_called_like_the_original(real, on):
    if not on:
        real.module.pause()

    def function(a, *rest, b=2, **more):
        return a, rest, b, more

    wrapped = real.module.wrap(real.module.profile("function"), function)
    assert wrapped(1) == (1, (), 2, {})
    assert wrapped(1, 3, b=4, c=5) == (1, (3,), 4, {"c": 5})
    with pytest.raises(TypeError):
        wrapped()
    with pytest.raises(ZeroDivisionError):
        real.module.wrap(real.module.profile("raises"), lambda: 1 / 0)()
    if on:
        assert real.operation("function").calls == 3
        assert real.operation("raises").calls == 1


def plain_function():
    return 42


def test_a_wrapped_function_behaves_as_an_object(recorder):
    zone = recorder.profile("object")

    class Thing:
        method = recorder.wrap(zone, lambda self, x: (self, x))

    thing = Thing()
    assert thing.method(3) == (thing, 3)
    assert Thing.method(thing, 4) == (thing, 4)
    wrapped = recorder.wrap(zone, plain_function)
    wrapped.note = "kept"
    assert wrapped.note == "kept"
    reference = weakref.ref(wrapped)
    assert reference() is wrapped
    assert "plain_function" in repr(wrapped) or not recorder.NATIVE
    wrapped.cycle = wrapped
    del wrapped
    gc.collect()
    assert reference() is None
    assert repr(zone) == "profile('object')"
    if recorder.NATIVE:
        global pickled
        pickled = recorder.wrap(zone, plain_function)
        pickled.__qualname__, pickled.__module__ = "pickled", __name__
        assert pickle.loads(pickle.dumps(pickled)) is pickled
        with pytest.raises(TypeError):
            recorder.wrap("no zone", plain_function)


def test_a_zone_decorates_by_itself_or_by_callback(recorder):
    recorder.set_callbacks(yield_check=None, memory_span=None, decorate=None)
    zone = recorder.profile("decorates")
    if recorder.NATIVE:
        with pytest.raises(TypeError):
            zone()
        with pytest.raises(TypeError):
            zone(plain_function, wrong=1)
    seen = []
    recorder.set_callbacks(
        yield_check=None, memory_span=lambda z: ("memory", z), decorate=lambda z, f: seen.append((z, f)) or f
    )
    assert zone(plain_function) is plain_function
    assert seen == [(zone, plain_function)]
    assert recorder.profile("decorates", track_memory=True) == ("memory", zone)
    assert recorder.profile(name="decorates", track_memory=False) is zone
    assert recorder.profile("decorates", False) is zone


def test_pools_hand_work_over(real):
    def work(origin, i):
        real.module.adopt(*origin)
        try:
            with real.module.profile("env"):
                time.sleep(0.001)
        finally:
            real.module.release()

    real.enter("rollout")
    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(work, real.module.here(), i) for i in range(9)]:
            future.result()
    real.exit("rollout")
    shard = real.read()
    branches = {b.name: b for b in fold([shard]).tree}
    assert branches["env"].calls == 9


@pytest.mark.parametrize("recorder", [native], ids=["native"])  # Python checks its own
def test_arguments_are_checked_before_anything_is_done(recorder):
    for call in (
        lambda: recorder.open(),
        lambda: recorder.lift("x"),
        lambda: recorder.adopt(1),
        lambda: recorder.note_memory(1),
        lambda: recorder.lose("x"),
        lambda: recorder.name_process(5),
        lambda: recorder.set_callbacks(),
        lambda: recorder.set_time(),
        lambda: recorder.use_track("x"),
        lambda: recorder.count(),
        lambda: recorder.count("a", 1, 2),
        lambda: recorder.count("a", m=2),
        lambda: recorder.profile("x", track_memory=Unsure()),
        lambda: recorder.profile("a", "b", "c"),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


class Unsure:
    def __bool__(self):
        raise ValueError("neither")


def test_while_off_everything_is_a_no_op(recorder):
    recorder.close()
    for call in (recorder.step, recorder.settle, recorder.charge, recorder.release, recorder.attach, recorder.end_track):
        call()
    recorder.adopt(1, 2)
    recorder.note_memory(1, 2, 3, True)
    recorder.lose(1)
    recorder.count("n", 2)
    recorder.name_process("nobody")
    assert recorder.lift(0, True) is None
    assert recorder.shard() is None
    assert isinstance(recorder.disk_error(), int)
    assert recorder.now() > 0


def test_many_thread_names_share_sixty_four_tracks(recorder):
    rig = Rig(recorder, clock=0).open()
    try:
        for i in range(100):
            name = "".join(chr(97 + int(c)) for c in str(i))
            thread = threading.Thread(target=lambda: rig.span("x", 0), name=name * 60)
            thread.start()
            thread.join()
        gc.collect()
        shard = rig.read()
        assert len(shard.tracks) <= 65
        assert rig.operation("x").calls == 100
    finally:
        rig.close()


def test_more_names_than_zones_share_one(recorder):
    rig = Rig(recorder).open()
    try:
        for i in range(17_000):
            with recorder.profile(f"flood {i}"):
                pass
        assert rig.read().recorded == 17_000
        assert rig.read().losses["label_overflow"] > 0
    finally:
        rig.close()


def test_a_with_that_is_open_while_names_make_room_closes_nobody_elses_span(recorder):
    rig = Rig(recorder).open()
    names = [f"new {i}" for i in range(8_000)]
    try:
        for i in range(9_000):
            recorder.profile(f"flood {i}")
        with recorder.profile("".join(("op", "en"))):  # a name that nobody else holds
            for i in range(600):
                recorder.profile(f"more {i}")
            rig.open()
            for name in names:
                rig.enter(name)
        assert recorder.depth() == 8_000
        for name in reversed(names):
            rig.exit(name)
        assert recorder.depth() == 0
    finally:
        rig.close()
