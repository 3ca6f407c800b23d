"""Several threads make what a shard holds at the same moment: nothing that one of them wrote is written over by another.

The native recorder does it under the interpreter lock. The Python one has a lock of its own, and every moment between
"there is room here" and "this is taken" is made long here, so that a place that forgets the lock is found each time.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from hotloop.record import twin
from hotloop.record.twin import session
from hotloop.record.twin.tree import state
from hotloop.store import schema as s
from hotloop.store.writer import Block, ShardWriter

from .conftest import Rig, path_names

THREADS = 8


def give_way_before_publishing(monkeypatch) -> None:
    publish = Block.publish

    def slowly(block: Block, items: int) -> None:
        texts = block.words[s.HEAD_KIND] & 0xFFFFFFFF == s.STRINGS  # a thread's name is the last of what its track needs
        time.sleep(0.005 if texts else 0.0005)
        publish(block, items)

    monkeypatch.setattr(Block, "publish", slowly)


def side_by_side(rig: Rig, work) -> None:
    """Call `work` in eight threads that begin at once, each with a name of its own; they end after it is read."""
    begin, end = threading.Barrier(THREADS), threading.Barrier(THREADS + 1)

    def one(letter: str) -> None:
        begin.wait()
        work(letter)
        end.wait()

    threads = [threading.Thread(target=one, args=(letter,), name=f"thread-{letter}") for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    end.wait()
    for thread in threads:
        thread.join()


def test_threads_that_begin_at_once_keep_their_names_labels_and_spans(recorder, monkeypatch):
    give_way_before_publishing(monkeypatch)
    rig = Rig(recorder, clock=0).open()

    def work(letter: str) -> None:
        for _ in range(2):
            with recorder.profile(f"work of {letter}"), recorder.profile("the same for all"):
                recorder.count(f"counted by {letter}", 2)

    side_by_side(rig, work)
    shard = rig.read()
    rig.close()
    names = {track.id: track.name for track in shard.tracks if track.entered}
    assert sorted(names.values()) == [f"thread-{letter}" for letter in "abcdefgh"]
    calls = {(names[node.track], path_names(shard, node.path)): node.count for node in shard.nodes if node.count}
    assert calls == {
        (f"thread-{letter}", path): 2
        for letter in "abcdefgh"
        for path in ((f"work of {letter}",), (f"work of {letter}", "the same for all"))
    }
    assert {name: n for name, n in shard.counters.items() if n} == {f"counted by {letter}": 4 for letter in "abcdefgh"}
    sites = {label.name: label.site for label in shard.labels if label.name.startswith(("work of", "the same"))}
    assert len(sites) == THREADS + 1
    assert all(site.startswith(__file__) for site in sites.values())


def test_workers_that_fall_idle_at_once_keep_their_spans(recorder, monkeypatch):
    give_way_before_publishing(monkeypatch)
    rig = Rig(recorder, clock=0).open()
    rig.enter("submits")
    origin = recorder.here()

    def work(letter: str) -> None:
        recorder.adopt(*origin)
        rig.span(f"work of {letter}", 0)
        recorder.release()
        rig.span("alone", 0)

    side_by_side(rig, work)
    shard = rig.read()
    rig.close()
    done = {path_names(shard, node.path)[-1]: 0 for node in shard.nodes if node.count}
    for node in shard.nodes:
        if node.count:
            done[path_names(shard, node.path)[-1]] += node.count
    assert done == {"(handed over)": THREADS, "alone": THREADS} | {f"work of {letter}": 1 for letter in "abcdefgh"}
    assert len([node for node in shard.nodes if shard.label_of(node.path).name == "(waiting: idle worker)"]) == THREADS


def test_the_python_recorder_makes_nothing_without_its_lock(monkeypatch, tmp_path):
    """Whoever takes room in the shard holds the lock, in every part of the recorder that takes some."""
    without: list[str] = []

    def watch(name: str) -> None:
        original = getattr(ShardWriter, name)

        def watched(self, *args):
            if self is state.shard and not state.lock._is_owned():
                without.append(f"{name}{args}")
            return original(self, *args)

        monkeypatch.setattr(ShardWriter, name, watched)

    for name in ("string", "site", "item", "publish", "block"):
        watch(name)

    def generator():
        with twin.profile("held across a yield"):
            yield 1

    rig = Rig(twin, clock=0, directory=str(tmp_path), long_ns=1, log_events=64, ring_events=64).open()
    twin.set_callbacks(yield_check=lambda code, last: "somewhere.py:1", memory_span=None, decorate=None)
    with twin.profile("outer"):
        for i in range(300):
            rig.span(f"label {i}", 0)
        assert list(generator()) == [1]
        rig.enter("lifted")
        token = twin.lift(1, False)
        origin = twin.here()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(twin.lower, token).result()
            pool.submit(twin.adopt, *origin).result()
            pool.submit(twin.adopt, 77, 7).result()
            pool.submit(twin.release).result()
            pool.submit(twin.release).result()
        twin.count("counted", 2)
        twin.name_process("a process")
        twin.step()
        twin.reset()
        rig.span("after a reset", 0)
    twin.pause()
    twin.resume()
    rig.span("after a pause", 0)
    assert rig.read().losses.get("internal", 0) == 0
    rig.close()
    assert without == []


def test_a_signal_handler_that_opens_a_span_while_its_thread_gets_a_track_is_counted(monkeypatch):
    rig = Rig(twin, clock=0).open()
    rig.span("before", 0)
    thread_name = session._thread_name

    def interrupted() -> str:
        rig.span("in the handler", 0)
        return thread_name()

    monkeypatch.setattr(session, "_thread_name", interrupted)
    thread = threading.Thread(target=lambda: rig.span("work", 0), name="interrupted")
    thread.start()
    thread.join()
    shard = rig.read()
    rig.close()
    assert [track.name for track in shard.tracks if track.entered] == [threading.current_thread().name, "interrupted"]
    assert {shard.label_of(n.path).name: n.count for n in shard.nodes if n.count} == {"before": 1, "work": 1}
    assert shard.losses["dropped_reentrant"] >= 1


def test_a_thread_that_waited_for_its_track_while_the_recording_ended_begins_none(tmp_path):
    rig = Rig(twin, clock=0, directory=str(tmp_path)).open()
    rig.span("before", 0)
    reached = threading.Event()

    def late() -> None:
        reached.set()
        rig.span("late", 0)

    thread = threading.Thread(target=late)
    with state.lock:
        thread.start()
        reached.wait()
        time.sleep(0.05)  # by now it waits for the lock, or is about to
        rig.close()
    thread.join()
    assert twin.shard() is None
    assert len(list(tmp_path.iterdir())) == 1
