"""Edges of spans are told to whoever places a device's events there, as often as they ask for it."""

from __future__ import annotations

import threading

import pytest

from hotloop.model import role as r

NEVER = (1 << 64) - 1


class Listener:
    def __init__(self, rig, answer=lambda now: 0, ns=0):
        self.rig, self.answer, self.ns = rig, answer, ns
        self.told: list[tuple[str, int]] = []

    def __call__(self, where, entered):
        shard = self.rig.read()
        assert where[0] == shard.id
        self.told.append((shard.label_of(where[1]).name if where[1] else "", entered))
        self.rig.tick(self.ns)
        return self.answer(self.rig.t)


@pytest.fixture
def listen(rig):
    def make(**more):
        listener = Listener(rig, **more)
        rig.module.set_on_edge(listener)
        return listener

    yield make
    rig.module.set_on_edge(None)


def test_each_edge_is_told_with_the_span_that_is_innermost_from_there_on(rig, listen):
    listener = listen()
    rig.enter("a")
    rig.span("b", 10)
    rig.exit("a")
    assert listener.told == [("a", 1), ("b", 1), ("a", 0), ("", 0)]


def test_what_the_listener_takes_is_the_profilers_time(rig, listen):
    listen(ns=100)
    rig.enter("a")
    rig.tick(7)
    rig.span("b", 30)
    rig.exit("a")
    assert rig.node("a").self_ns == 7
    assert rig.node("a", "b").self_ns == 30
    assert rig.node("a").total_ns == 37


def test_it_is_told_again_only_from_when_on_it_asked_for(rig, listen):
    listener = listen(answer=lambda now: now + 100)
    for _ in range(30):
        rig.span("a", 10)
    assert len(listener.told) == 4
    listener.answer = lambda now: NEVER
    for _ in range(30):
        rig.span("a", 10)
    assert len(listener.told) == 5


def test_hooks_tell_where_their_part_has_device_times(looping, listen):
    listener = listen()
    backward, printed = looping.hooked(r.BACKWARD), looping.hooked(r.PRINT)
    listener.told.clear()
    backward(5)
    printed(5)
    looping.env().step()
    assert [name for name, entered in listener.told if entered] == ["learn/backward", "collect/env_step"]


def test_a_listener_that_fails_is_not_asked_again_and_the_script_never_knows(rig, listen):
    def fail(now):
        raise RuntimeError("mine")

    listener = listen(answer=fail)
    for _ in range(3):
        rig.span("a", 10)
    assert len(listener.told) == 1
    assert rig.node("a").count == 3
    assert rig.read().losses == {"internal": 1}


def test_spans_of_the_listener_itself_are_not_told(rig, listen):
    listener = listen(answer=lambda now: rig.span("own", 1) or 0)
    rig.span("a", 10)
    assert listener.told == [("a", 1), ("", 0)]


def test_an_exception_on_its_way_passes_a_listener_unharmed(looping, listen):
    def fail(*_):
        raise KeyError("theirs")

    listener = listen()
    hooked = looping.hooked(r.BACKWARD, fail)
    with pytest.raises(KeyError, match="theirs"):
        hooked()
    assert listener.told[-1][1] == 0


def test_a_listener_may_end_the_recording(rig, listen):
    listener = listen(answer=lambda now: rig.module.close() or 0)
    with rig.module.profile("a"):
        pass
    assert not rig.module.is_on()
    with rig.module.profile("b"):
        pass
    assert listener.told == [("a", 1)]
    rig.open()
    assert [node for node in rig.read().nodes if node.count] == []


def test_spans_that_a_reset_carries_over_are_no_edges(rig, listen):
    listener = listen()
    rig.enter("a")
    listener.told.clear()
    rig.module.reset()
    assert listener.told == []
    rig.exit("a")
    assert listener.told == [("", 0)]


def test_other_threads_edges_are_told_meanwhile(rig, listen):
    def answer(now):
        if len(listener.told) == 1:
            other = threading.Thread(target=rig.span, args=("b", 1))
            other.start()
            other.join()
        return 0

    listener = listen(answer=answer)
    rig.span("a", 10)
    assert [name for name, entered in listener.told if entered] == ["a", "b"]


def test_ctrl_c_in_the_listener_reaches_the_script_and_the_listener_is_told_again(rig, listen):
    def interrupt(now):
        listener.answer = lambda now: 0
        raise KeyboardInterrupt

    listener = listen(answer=interrupt)
    with pytest.raises(KeyboardInterrupt):
        rig.enter("a")
        for _ in range(100):  # where the interpreter looks for it
            pass
    rig.exit("a")
    assert listener.told == [("a", 1), ("", 0)]
    assert not rig.read().losses
