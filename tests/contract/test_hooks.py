"""Hooked calls in both recorders: what a call sees and leaves, the recording's life, classes, garbage and writes."""

from __future__ import annotations

import builtins
import gc
import inspect
import os
import pickle
import subprocess
import sys
import weakref
from typing import Any

import pytest

from hotloop.integrations import _patch as p
from hotloop.model import phase as phases
from hotloop.model import role as r
from hotloop.model import shard as m
from hotloop.store.shard import decode

from .conftest import Bench, path_names
from .test_session import leave

# ---- spans ----


def test_a_hooked_call_is_a_span_with_its_phase(looping):
    write = looping.hooked(r.PRINT)
    assert write(7) == 7
    assert looping.times() == {"log/print": 7}
    label = next(x for x in looping.rig.read().labels if x.name == "log/print")
    assert (label.kind, label.phase, label.owns) == (m.USER, phases.LOG, True)


def test_what_is_already_inside_its_kind_is_passed_by(looping):
    inner = looping.hooked(r.LOGGING)
    outer = looping.hooked(r.PRINT, lambda: inner(5))
    assert outer() == 5
    inner(3)
    assert looping.calls() | {"log/print": 1, "log/logging": 1} == looping.calls()
    assert looping.times() == {"log/print": 5, "log/logging": 3}


def test_exceptions_pass_through_and_close_their_spans(looping):
    class OwnError(Exception):
        pass

    def fail() -> None:
        looping.tick(4)
        raise OwnError("mine")

    class Env:
        def step(self, action: int) -> None:
            fail()

        def reset(self) -> None: ...

    looping.patches.wrap(Env, "step", r.STEP)
    for call in (
        looping.hooked(r.PRINT, fail),
        looping.hooked(r.FORWARD, fail),
        looping.hooked(r.EVALUATE, fail),
        lambda: Env().step(1),
    ):
        with pytest.raises(OwnError, match="mine"):
            call()
    assert looping.module.depth() == 0
    assert looping.counters() == {"env_steps": 1}, "a step that failed is none"
    write = looping.hooked(r.LOGGING)
    write(1)
    looping.hooked(r.FORWARD)(1)
    assert looping.calls()["log/logging"] == 1, "nothing is thought open any more"
    assert looping.module.within(0) == 0
    assert sum(looping.times().values()) == 4 * 4 + 2
    assert "internal" not in looping.rig.read().losses


def test_results_and_arguments_pass_unchanged(looping):
    result = object()
    given: list[Any] = []

    def take(*args: Any, **keywords: Any) -> object:
        given.append((args, keywords))
        return result

    for role in (r.PRINT, r.FORWARD, r.FROM_LIST, r.EVALUATE, r.STEP, r.RESET, r.OPTIMIZER):
        hooked = looping.hooked(role, take)
        assert hooked([1], 2, key=3) is result
        assert given.pop() == (([1], 2), {"key": 3})
        assert hooked() is result
        assert given.pop() == ((), {})


def test_a_hooked_function_looks_like_the_function(bench):
    def original(a: int, b: str = "x") -> None:
        """What it does."""

    original.mark = 5
    hooked = bench.hooked(r.PRINT, original)
    assert p.is_ours(hooked)
    assert hooked.__wrapped__ is original
    assert hooked.__name__ == "original"
    assert hooked.__qualname__ == original.__qualname__
    assert hooked.__doc__ == "What it does."
    assert hooked.__module__ == __name__
    assert hooked.mark == 5
    assert inspect.signature(hooked) == inspect.signature(original)
    assert repr(hooked) == repr(original)
    hooked.note = 1
    assert hooked.note == 1 and not hasattr(original, "note")
    with pytest.raises(AttributeError):
        hooked.nothing  # noqa: B018
    hooked.__doc__ = "Something else."
    assert hooked.__doc__ == "Something else."
    assert weakref.ref(hooked)() is hooked


def test_a_hooked_method_is_bound_to_its_object(looping):
    class Thing:
        def method(self, n: int) -> tuple[Any, int]:
            return self, n

    looping.patches.wrap(Thing, "method", r.PRINT)
    thing = Thing()
    assert thing.method(3) == (thing, 3)
    assert Thing.method(thing, 4) == (thing, 4)
    assert p.is_ours(Thing.method)
    looping.patches.undo()
    assert not p.is_ours(Thing.method)


def pickled(n: int) -> int:
    return n


def test_a_hooked_function_is_pickled_by_its_name(bench, monkeypatch):
    hooked = bench.hooked(r.PRINT, pickled)
    monkeypatch.setattr(sys.modules[__name__], "pickled", hooked)
    assert pickle.loads(pickle.dumps(hooked)) is hooked


def test_who_pickles_classes_by_value_gets_the_function_and_its_role(bench):
    hooked = bench.hooked(r.PRINT, pickled)
    scope: dict[str, Any] = {}
    exec(compile("def reduce(hooked): return hooked.__reduce__()", "/lib/cloudpickle/cloudpickle.py", "exec"), scope)
    bench.module.set_revive(p.revive)
    try:
        assert scope["reduce"](hooked) == (p.revive, (pickled, r.PRINT))
        assert hooked.__reduce__() == "pickled"
    finally:
        bench.module.set_revive(None)
    assert scope["reduce"](hooked) == "pickled"


@pytest.mark.parametrize(
    ("file", "by_value"),
    [("/x/cloudpickle/cloudpickle_fast.py", True), ("/x/ray/cloudpickle/py.py", True), ("cloudpickle.py", True),
     ("/x/dill/_dill.py", True),
     ("C:\\\\lib\\\\dill.py", True), ("/home/dilly/train.py", False), ("/x/cloudpickler.py", False), ("/x/bdill/a.py", False),
     ("/x/armadillo.py", False), ("", False)],
)  # fmt: skip
def test_who_pickles_by_value_is_known_by_the_parts_of_the_path(bench, file, by_value):
    hooked = bench.hooked(r.PRINT, pickled)
    scope: dict[str, Any] = {}
    exec(compile("def reduce(hooked): return hooked.__reduce__()", file, "exec"), scope)
    bench.module.set_revive(p.revive)
    try:
        assert (scope["reduce"](hooked) != "pickled") is by_value
    finally:
        bench.module.set_revive(None)


def test_a_hook_needs_a_zone_for_every_phase(bench):
    zone = bench.module.zone("z", m.USER, phases.LOG, True)
    for zones, event in (((zone,), 0), ((None,) * 4, 0), ((zone, None, None, None), 4)):
        with pytest.raises(ValueError, match="one per phase"):
            bench.module.hook(print, r.SPAN, zones, event, 0, 0, 0, None, 1)


def test_a_label_in_use_keeps_its_meaning(looping):
    looping.rig.span("mine", 1)
    looping.module.zone("mine", m.WAIT, phases.LEARN, True)
    looping.rig.span("mine", 1)
    label = next(x for x in looping.rig.read().labels if x.name == "mine")
    assert (label.kind, label.phase, label.owns) == (m.USER, 0, False)


def test_a_hooks_place_is_its_function_and_that_of_compiled_ones_where_the_script_calls_them(looping):
    def original() -> None: ...

    looping.hooked(r.Role("placed by its function", phases.LOG), original)()
    looping.hooked(r.Role("placed by its caller", phases.LOG), len)("")
    line = inspect.currentframe().f_lineno - 1
    sites = {x.name: x.site for x in looping.rig.read().labels}
    assert sites["log/placed by its function"] == f"{__file__}:{original.__code__.co_firstlineno}"
    assert sites["log/placed by its caller"] == f"{__file__}:{line}"
    looping.env().step()
    assert {x.name: x.site for x in looping.rig.read().labels}["Env.step"].startswith(os.path.dirname(__file__))


def test_without_a_recording_calls_pass_through(bench):
    env, model, write = bench.env(), bench.hooked(r.FORWARD), bench.hooked(r.PRINT)
    bench.module.pause()
    assert env.step()[1] == 1.0
    assert (model(2), write(3)) == (2, 3)
    assert bench.module.within(phases.EVAL) == 0
    bench.module.resume()
    bench.module.attach()
    assert bench.counters() == {}
    assert bench.calls() == {}
    bench.module.close()
    assert (model(2), write(3)) == (2, 3)


def test_hooks_before_anyone_named_the_gaps_do_no_harm(recorder):
    """In a process of its own: the names stay for good."""
    script = """
import sys
from hotloop.integrations import _patch as p
from hotloop.model import role as r
from hotloop.record.backend import recorder
from hotloop.record.recorder import DEFAULTS
recorder.open(**DEFAULTS)
hooked = p.Patches(recorder, print).hooked(len, r.OPTIMIZER)
assert hooked([1, 2]) == 2
assert hooked([1, 2]) == 2
recorder.close()
print(recorder.NATIVE)
"""
    env = os.environ | {"HOTLOOP_RECORDER": "native" if recorder.NATIVE else "python"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{recorder.NATIVE}\n", "")


# ---- the Python part after a call ----


def test_every_so_many_calls_the_script_is_looked_at_and_that_is_our_time(looping):
    seen: list[Any] = []

    def after(args: tuple[Any, ...], result: Any, phase: int) -> None:
        seen.append((args, result, phase))
        looping.tick(100)

    step = looping.hooked(r.OPTIMIZER, after=after, every=5)
    for ns in range(1, 9):
        step(ns, "x")
    assert seen == [((ns, "x"), ns, phases.LEARN) for ns in (1, 2, 5, 6, 7)], "neighbours, so that a repetition shows"
    assert looping.times() == {"learn/optimizer": 36, "(profiler)": 500}
    assert looping.rig.node("learn/optimizer").total_ns == 36


def test_a_fault_in_that_part_is_counted_and_swallowed(looping):
    def after(args: tuple[Any, ...], result: Any, phase: int) -> None:
        raise RuntimeError("ours")

    assert looping.hooked(r.PRINT, after=after)(3) == 3
    assert looping.hooked(r.FORWARD, after=after)(3) == 3
    assert looping.rig.read().losses["internal"] == 2


def test_that_part_may_end_the_recording(looping):
    step = looping.hooked(r.OPTIMIZER, after=lambda *_: looping.module.close())
    assert step(3) == 3
    assert looping.module.snapshot() == b""


# ---- life of the recording ----


def test_hooks_go_on_over_a_reset(looping):
    env, model, backward = looping.env(), looping.hooked(r.FORWARD), looping.hooked(r.BACKWARD)

    def step_and_reset() -> None:
        env.step()
        looping.module.reset()
        looping.tick(3)

    looping.hooked(r.ROLLOUT, step_and_reset)()
    model(5)
    backward(1)
    env.step()
    assert looping.counters() == {"env_steps": 1}
    assert sum(looping.times().values()) == 3 + 5 + 1 + 10
    assert looping.module.depth() == 0
    losses = looping.rig.read().losses
    assert "internal" not in losses and "stray_exit" not in losses


def test_a_reset_leaves_other_threads_their_names(rig):
    for which in (1, 2):
        rig.track(which)
        rig.span("x", 1)
    rig.module.reset()
    rig.track(-1)
    assert [t.name for t in rig.read().tracks][1:] == ["virtual-1", "virtual-2"]


def test_a_child_forked_within_a_hooked_call_is_in_none(disk_rig, tmp_path):
    recorder = disk_rig.module
    bench = Bench(disk_rig)
    env = bench.env()

    def fork_and_wait() -> int:
        child = os.fork()
        if not child:
            try:
                env.step()
                recorder.close()
            finally:
                leave(recorder)
        return os.waitpid(child, 0)[1]

    assert bench.hooked(r.EVALUATE, lambda: bench.hooked(r.RESET, fork_and_wait)())() == 0
    env.step()
    recorder.close()
    shards = [decode(file.read_bytes()) for file in tmp_path.iterdir()]
    assert len(shards) == 2
    for shard in shards:
        assert shard.counters["env_steps"] == 1
        assert "eval_env_steps" not in shard.counters
        assert ("collect/env_step", "Env.step") in {path_names(shard, node.path) for node in shard.nodes if node.count}


# ---- garbage, classes, writes ----


def test_a_collection_of_garbage_is_a_pause_of_the_span_it_falls_into(looping):
    looping.rig.enter("work")
    looping.tick(1)
    looping.module.gc_pause("start", {"generation": 0})
    looping.tick(20)
    looping.module.gc_pause("stop", {"generation": 0})
    looping.rig.exit("work")
    assert looping.times() == {"work": 1, "work > (gc pause)": 20}
    label = next(x for x in looping.rig.read().labels if x.name == m.GC_PAUSE)
    assert label.kind == m.GARBAGE


def test_the_collector_calls_it_with_whatever_it_likes(looping):
    gc.callbacks.append(looping.module.gc_pause)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(looping.module.gc_pause)
    assert looping.calls()[m.GC_PAUSE] == 1
    looping.module.pause()
    looping.module.gc_pause("start", {})
    looping.module.gc_pause("stop", {})
    looping.module.resume()
    assert looping.calls()[m.GC_PAUSE] == 1


def test_classes_that_define_one_of_the_names_are_shown_as_they_are_made(recorder):
    before = builtins.__build_class__
    seen: list[type] = []
    recorder.watch_classes(("step", "reset"), seen.append)
    try:

        class Env:
            def step(self) -> None: ...

        class Other: ...

        class Derived(Env): ...

        class Meta(type):
            def __new__(cls, name: str, bases: Any, space: Any, flag: int) -> Any:
                return super().__new__(cls, name, bases, space)

        class Made(metaclass=Meta, flag=1):
            reset = 3

            def me(self) -> type:
                return __class__

        class Odd(metaclass=lambda *args: 17):
            step = 1

        with pytest.raises(RuntimeError, match="in the body"):

            class Failing:
                step = 1
                raise RuntimeError("in the body")

    finally:
        recorder.watch_classes((), None)
    assert seen == [Env, Made]
    assert Made().me() is Made
    assert (Odd, Derived.__name__, Other.__qualname__.rpartition(".")[2]) == (17, "Derived", "Other")
    assert builtins.__build_class__ is before

    class After:
        def step(self) -> None: ...

    assert After not in seen


def test_a_fault_of_who_looks_at_classes_is_counted(rig):
    def look(cls: type) -> None:
        raise RuntimeError("ours")

    rig.module.watch_classes(("step",), look)

    class Env:
        step = 1

    assert Env.step == 1
    assert rig.read().losses["internal"] == 1


def test_text_written_is_logging(looping, tmp_path):
    original = os.fsync
    hooked = looping.module.hook_writes()
    try:
        assert looping.module.hook_writes() == []
        with open(tmp_path / "log.txt", "w") as file:
            file.write("x")
            file.flush()
            os.fsync(file.fileno())
            calls = looping.calls()["log/write"]
    finally:
        looping.module.unhook_waits()
    reached = [name for name in hooked if not name.startswith("!")]
    assert calls == len(reached)
    assert len(hooked) == 3
    assert len(reached) == (3 if looping.module.NATIVE else 1)
    label = next(x for x in looping.rig.read().labels if x.name == "log/write")
    assert (label.kind, label.phase, label.owns) == (m.USER, phases.LOG, True)
    assert os.fsync is original
    calls = looping.calls()["log/write"]
    with open(tmp_path / "log.txt", "w") as file:
        file.write("y")
    assert looping.calls()["log/write"] == calls


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_what_a_signal_handler_raises_in_code_of_ours_reaches_the_script(looping, error):
    """Ctrl-C, and SIGTERM where the script turns it into an exit: they arrive wherever Python runs."""

    def interrupt(args, result, phase):
        raise error

    hooked = looping.hooked(r.BACKWARD, after=interrupt)
    with pytest.raises(type(error)) as caught:
        hooked(5)
        for _ in range(100):  # where the interpreter looks for it
            pass
    assert caught.value is error
    assert "internal" not in looping.rig.read().losses
