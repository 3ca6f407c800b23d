"""Environments in both recorders: events, layers, and what a step counts."""

from __future__ import annotations

import collections
import dataclasses
import gc
import threading
import weakref
from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from hotloop.integrations import _patch as p
from hotloop.integrations.classes import Classes
from hotloop.integrations.environments import holds, shows_environment
from hotloop.model import role as r
from hotloop.store.shard import decode

from .conftest import Bench, Rig


def test_a_step_is_an_event_with_the_class_below_it(bench):
    bench.env().step()
    assert bench.times() == {"collect/env_step > Env.step": 10}
    assert bench.counters() == {"env_steps": 1}


def test_nested_environments_are_layers_and_count_once(looping):
    inner = looping.env(ns=3)

    class Wrapper:
        def step(self, action: int) -> Any:
            looping.tick(2)
            return inner.step(action)

        def reset(self) -> Any:
            return inner.reset()

    looping.patches.wrap(Wrapper, "step", r.STEP)
    looping.patches.wrap(Wrapper, "reset", r.RESET)
    Wrapper().step(0)
    Wrapper().reset()
    assert looping.times() == {
        "collect/env_step > Wrapper.step": 2,
        "collect/env_step > Wrapper.step > Env.step": 3,
        "collect/env_reset > Wrapper.reset > Env.reset": 3,
    }
    assert looping.counters() == {"env_steps": 2, "resets": 1}


def test_the_step_of_a_base_class_is_no_layer_of_its_own(looping):
    class Base:
        def step(self, action: int) -> Any:
            looping.tick(3)
            return 0, 1.0, False, False, {}

        def reset(self) -> None: ...

    class Derived(Base):
        def step(self, action: int) -> Any:
            looping.tick(1)
            return super().step(action)

    for cls in (Base, Derived):
        looping.patches.wrap(cls, "step", r.STEP)
    Derived().step(0)
    assert looping.times() == {"collect/env_step > Derived.step": 4}
    assert looping.counters() == {"env_steps": 2}


class Sized:
    """As a tensor: it has a length and is not a list."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        if self.n < 0:
            raise TypeError("a scalar has no length")
        return self.n


@pytest.mark.parametrize(
    ("reward", "steps"),
    [(1.0, 1), (2, 1), (None, 1), ([1.0, 2.0], 2), ((1.0, 2.0, 3.0), 3), ([], 1), (Sized(5), 5), (Sized(0), 1), (Sized(-1), 1),
     (array("d", [1, 2]), 2), (range(4), 4), ({"a": 1, "b": 2}, 1), (object(), 1)],
)  # fmt: skip
def test_steps_are_counted_by_the_leading_dimension_of_the_reward(bench, reward, steps):
    bench.env((0, reward, False, {})).step()
    assert bench.counters() == {"env_steps": steps}


@pytest.mark.parametrize("result", [None, 3.0, ([1, 2],), (0, 1.0), [0, [1, 2], [True, True]]])
def test_a_result_of_another_shape_is_one_step(bench, result):
    bench.env(result if result is not None else "nothing").step()
    assert bench.counters() == {"env_steps": 1}


@pytest.mark.parametrize(
    ("flags", "episodes"),
    [((False,), 0), ((True,), 1), ((False, True), 1), ((True, True), 1),
     (([True, False, True],), 2), (([True, False, False], [False, False, True]), 2), (([True, False, False, True],), 1),
     ((b"\x01\x00\x01",), 2), ((array("b", [1, 0, 0]), array("b", [0, 1, 0])), 2), ((array("d", [1, 0, 1]),), 2),
     ((array("f", [1, 0, 0]), array("q", [0, 1, 0])), 2), ((array("d", [1, 0.5, 1]), b"\x00\x01\x00"), 1),
     ((None, b"\x00\x01\x01"), 2), ((object(),), 0), ((1,), 0),
     ((memoryview(b"\x01\x01\x01\x01\x01\x01")[::2],), 0)],
)  # fmt: skip
def test_episodes_are_counted_by_the_flags(bench, flags, episodes):
    """(obs, rewards, done, info) or (obs, rewards, terminated, truncated, info), one flag per environment."""
    one = isinstance(flags[0], bool)
    bench.env((0, 1.0 if one else [1.0, 2.0, 3.0], *flags, {})).step()
    assert bench.counters().get("episodes", 0) == episodes


def test_arrays_of_numpy_are_counted_too(bench):
    import numpy as np

    done = np.zeros(100, bool)
    done[[3, 99]] = True
    bench.env((0, np.ones(100), done, np.zeros(100, bool), {})).step()
    assert bench.counters() == {"env_steps": 100, "episodes": 2}
    bench.env((0, np.float32(1.0), np.bool_(True), np.bool_(False), {})).step()
    bench.env((0, np.array(1.0), True, False, {})).step()
    assert bench.counters() == {"env_steps": 102, "episodes": 4}
    bench.env((0, np.ones(3), np.ones((3, 2), bool)[:, 0], {})).step()  # every other byte: not looked at
    assert bench.counters() == {"env_steps": 105, "episodes": 4}


def test_steps_of_an_evaluation_are_counted_apart(looping):
    env = looping.env((0, [1.0, 1.0], [True, True], {}))
    looping.hooked(r.EVALUATE, lambda: [env.step(), env.reset()])()
    env.step()
    assert looping.counters() == {"env_steps": 3, "eval_env_steps": 2, "episodes": 2}, "resets of an evaluation count nowhere"
    assert looping.times() == {
        "eval/evaluate > eval/env_step > Env.step": 10,
        "eval/evaluate > eval/env_reset > Env.reset": 10,
        "collect/env_step > Env.step": 10,
    }


def test_steps_are_kept_by_environment(looping):
    """So that a slow one among many can be named; evaluations are not among them."""
    first, second = looping.env(ns=10), looping.env(ns=70)
    for env in (first, second, second):
        env.step()
    looping.hooked(r.EVALUATE, first.step)()
    first.reset()
    envs = [(env.steps, env.ns, env.track, env.label) for env in looping.rig.read().envs]
    assert envs == [(1, 0, 0, "Env.step"), (1, 10, 0, "Env.step"), (2, 140, 0, "Env.step")], "the fixture's is the first"
    crowd = [looping.env(ns=1) for _ in range(80)]
    for env in crowd:
        env.step()
    assert len(looping.rig.read().envs) == 64


def test_a_result_whose_length_ends_the_recording_does_no_harm(bench):
    class Evil:
        def __len__(self) -> int:
            bench.module.close()
            return 2

    evil = Evil()
    assert bench.env((0, evil, False, {})).step()[1] is evil
    assert bench.module.snapshot() == b""


# ---- who they are ----


def test_an_environment_made_where_another_was_is_another(looping):
    """Addresses are used again, on CPython 3.13 at once; each of these is gone before the next is made."""
    cls = type(looping.env(ns=1))
    for _ in range(20):
        cls().step()
    assert [env.steps for env in looping.rig.read().envs] == [1] * 21, "the fixture's is the first"


def test_no_environment_is_kept_alive_and_none_of_its_code_runs(looping):
    class Env:
        def step(self, action: Any = None) -> Any:
            return 0, 1.0, False, {}

        def reset(self) -> None: ...

        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = None

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"asked for {name}")

    looping.patches.wrap(Env, "step", r.STEP)
    env = Env()
    gone = weakref.ref(env)
    env.step()
    env.step()
    del env
    assert gone() is None
    assert [env.steps for env in looping.rig.read().envs] == [1, 2]
    assert "internal" not in looping.rig.read().losses


def test_what_cannot_be_referred_to_weakly_is_told_apart_by_its_place_and_class(looping):
    class Slotted:
        __slots__ = ()

        def step(self, action: Any = None) -> Any:
            return 0, 1.0, False, {}

    looping.patches.wrap(Slotted, "step", r.STEP)
    first, second = Slotted(), Slotted()
    for env in (first, second, first):
        env.step()
    assert [env.steps for env in looping.rig.read().envs] == [1, 2, 1]


def test_beyond_the_slots_steps_count_all_the_same(looping):
    cls = type(looping.env(ns=1))
    for _ in range(300):
        cls().step()
    shard = looping.rig.read()
    assert len(shard.envs) == 64
    assert shard.counters["env_steps"] == 301
    crowd = [cls() for _ in range(300)]
    for env in crowd:
        env.step()
    assert looping.counters()["env_steps"] == 601


# ---- those that reset themselves ----


def look_at(looping: Bench, cls: type) -> type:
    Classes(looping.patches, lambda cls: False, looping.patches, []).look_at(cls)
    return cls


TimeStep = collections.namedtuple("TimeStep", "step_type reward discount observation")


@dataclasses.dataclass
class Moment:
    reward: float
    discount: float


@pytest.mark.parametrize(
    ("result", "steps"),
    [((0, 1.0, False), 1), ((0, 1, True, {}), 1), ((0, 1.0, False, False, {}), 1), ((0, [1.0, 2.0], [True, False], {}), 2),
     ((0, array("d", [1, 2, 3]), [True, False, False], {}), 3), (TimeStep(0, None, 1.0, 0), 1), (Moment(0.0, 1.0), 1),
     ((np.zeros((2, 3)), np.zeros(2), np.array([0.0, 1.0])), 2)],
)  # fmt: skip
def test_a_step_without_a_reset_is_an_environments_if_its_result_shows_it(bench, result, steps):
    class World:
        def step(self, action: int) -> Any:
            bench.tick(10)
            return result

    world = look_at(bench, World)()
    for _ in range(3):
        assert world.step(1) is result
    assert bench.counters()["env_steps"] == 3 * steps, "from the very first call on"
    assert bench.times()["collect/env_step > World.step"] == 20
    assert bench.times()["(start-up)"] == 10, "the call that showed it"


@pytest.mark.parametrize(
    "result",
    [None, 3.0, (0, 1.0), (0, "x", True), (0, 1.0, 2.0), (0, None, False, {}), (True, False, True),
     (0, 1.0, False, False, {}, 1), {"reward": 1.0, "done": False}, [0, 1.0, False, {}], (0, [], False, {}),
     (0, object(), False), (np.zeros((3, 2)), np.zeros(3), np.array([0.0, 0.5, 1.0]))],
)  # fmt: skip
def test_a_step_whose_results_are_none_of_an_environments_is_left_alone(bench, result):
    class Simulator:
        def step(self, dt: float) -> Any:
            return result

    original = Simulator.step
    simulator = look_at(bench, Simulator)()
    assert p.is_ours(Simulator.step)
    for _ in range(3):
        assert simulator.step(0.1) is result
    assert Simulator.step is original, "after three results it is put back"
    assert simulator.step(0.1) is result
    assert bench.calls() == {}
    assert bench.counters() == {}
    assert not shows_environment(result)


def test_a_hook_that_stepped_aside_stays_so_where_it_was_kept(bench):
    class Simulator:
        def step(self, dt: float) -> Any:
            return dt

    step = look_at(bench, Simulator)().step
    assert [step(i) for i in range(5)] == [0, 1, 2, 3, 4]
    assert bench.calls() == {}


def test_schedulers_timers_and_what_takes_no_action_are_not_tried(bench):
    class LearningRateScheduler:
        def step(self, epoch: int) -> None: ...

    class Timer:
        def step(self, seconds: float) -> None: ...

    class Simple:
        def step(self) -> None: ...

    for cls in (LearningRateScheduler, Timer, Simple):
        assert not p.is_ours(look_at(bench, cls).step)


def test_a_trial_changes_neither_exceptions_nor_signatures(bench):
    class World:
        def step(self, action: int, *, fail: bool = False) -> Any:
            """One step."""
            if fail:
                raise ValueError("mine")
            return 0, 1.0, False, {}

    world = look_at(bench, World)()
    assert World.step.__doc__ == "One step."
    for _ in range(5):
        with pytest.raises(ValueError, match="mine"):
            world.step(0, fail=True)
    world.step(0)
    assert bench.counters() == {"env_steps": 1}


def test_the_call_that_shows_a_wrapper_to_be_an_environment_counts_its_steps_once(looping):
    inner = looping.env(ns=3)

    class Wrapper:
        def step(self, action: int) -> Any:
            return inner.step(action)

    wrapper = look_at(looping, Wrapper)()
    for _ in range(3):
        wrapper.step(0)
    assert looping.counters() == {"env_steps": 1 + 3}
    assert looping.calls()["collect/env_step > Wrapper.step > Env.step"] == 2


# ---- inside others ----


HIDDEN: list[list[Any]] = []  # environments that cannot be reached from who steps them, as if made inside its threads


class Vector:
    """A vector environment written by hand: its environments are stepped on other threads, one after the other."""

    def __init__(self, bench: Bench, envs: list[Any], waits: bool = True, hidden: bool = False, first: int = 1) -> None:
        self.envs: list[Any] | None = None if hidden else envs
        self.number = len(HIDDEN)
        HIDDEN.append(envs)
        self.bench, self.first = bench, first
        self.wait = bench.patches.waiting(self.work, "lock") if waits else self.work

    def step(self, action: Any = None) -> Any:
        self.bench.tick(1)
        self.wait("step")
        n = len(HIDDEN[self.number])
        return [0] * n, [1.0] * n, [False] * n, {}

    def reset(self) -> Any:
        self.wait("reset")

    def work(self, what: str) -> None:
        for number, env in enumerate(HIDDEN[self.number], self.first):
            self.bench.rig.track(number)
            getattr(env, what)()
            self.bench.rig.track(self.first - 1)


@pytest.fixture
def threads(recorder: Any, tmp_path: Any) -> Any:
    """The main thread is number 0; the recorder asks what holds what."""
    bench = Bench(Rig(recorder, directory=str(tmp_path)).open())
    bench.rig.track(0)
    bench.module.set_on_env(None, holds)
    for name, role in (("step", r.STEP), ("reset", r.RESET)):
        bench.patches.wrap(Vector, name, role)
    yield bench
    bench.patches.undo()
    bench.module.set_on_env(None, None)
    HIDDEN.clear()
    bench.rig.close()


def ended(bench: Bench, folder: Any) -> Any:
    bench.module.use_track(-1)
    bench.module.close()
    (file,) = folder.iterdir()
    shard = decode(file.read_bytes())
    assert shard.problems == ()
    return shard


def test_environments_stepped_by_the_threads_of_another_count_once(threads):
    vector = Vector(threads, [threads.env(ns=3) for _ in range(4)])
    vector.reset()
    for _ in range(5):
        vector.step()
    assert threads.counters() == {"env_steps": 20, "resets": 4}
    assert [(env.steps, env.ns) for env in threads.rig.read().envs] == [(5, 5 * 13), *[(5, 15)] * 4]
    calls = threads.calls()
    assert calls["collect/env_step > Vector.step"] == 5
    assert calls["collect/env_step > Vector.step > (handed over) > Env.step"] == 5, "a thread each"
    assert "collect/env_step > Env.step" not in calls


def test_environments_of_another_that_are_stepped_by_themselves_count(threads):
    envs = [threads.env(ns=3) for _ in range(2)]
    vector = Vector(threads, envs)
    vector.step()
    threads.rig.track(1)
    envs[0].step()
    assert threads.counters()["env_steps"] == 2 + 1 + 1, "what was held back counts: it is stepped outside too"


def test_environments_made_inside_threads_are_known_by_their_times(threads, tmp_path):
    vector = Vector(threads, [threads.env(ns=3) for _ in range(2)], hidden=True)
    for _ in range(50):
        vector.step()
    assert threads.counters()["env_steps"] == 100
    assert threads.calls()["collect/env_step > Vector.step > (handed over) > Env.step"] == 42, "since it was known"
    shard = ended(threads, tmp_path)
    assert shard.counters["env_steps"] == 100
    assert [env.steps for env in shard.envs] == [50, 50, 50]


def test_what_is_undecided_when_recording_ends_counts(threads, tmp_path):
    vector = Vector(threads, [threads.env(ns=3) for _ in range(2)], hidden=True)
    for _ in range(3):
        vector.step()
    assert threads.counters()["env_steps"] == 6
    assert ended(threads, tmp_path).counters["env_steps"] == 12


def test_what_another_does_not_wait_for_is_none_of_its_parts(threads):
    """An actor whose steps happen to fall into longer ones of another, time and again."""
    vector = Vector(threads, [threads.env(ns=3)], waits=False, hidden=True)
    for _ in range(64):
        vector.step()
    assert threads.counters()["env_steps"] == 128


def test_actors_with_an_environment_each_count_all_their_steps(threads):
    class Manager:
        actors: list[Any]

    envs = [threads.env(ns=10) for _ in range(3)]
    manager = Manager()
    manager.actors = envs
    for env in envs:
        env.manager = manager  # so each can be reached from each
    for turn in range(30):
        for number, env in enumerate(envs):
            threads.rig.track(number)
            env.step() if turn % 3 else env.reset()
    assert threads.counters() == {"env_steps": 60, "resets": 30}


def test_overlapping_actors_count_all_their_steps(threads):
    """The second's step begins within the first's and ends after it."""
    second = threads.env(ns=5)
    inside = second.step.__func__

    class First:
        def step(self, action: Any = None) -> Any:
            threads.rig.track(1)
            started.__enter__()
            threads.rig.track(0)
            threads.tick(3)
            return 0, 1.0, False, {}

    started = threads.module.profile("x")
    threads.patches.wrap(First, "step", r.STEP)
    first = First()
    for _ in range(4):
        first.step()
        threads.rig.track(1)
        inside(second)
        started.__exit__(None, None, None)
        threads.rig.track(0)
    assert threads.counters()["env_steps"] == 8


def test_vectors_in_vectors_on_threads_count_once(threads):
    group = Vector(threads, [threads.env(ns=1) for _ in range(2)], first=2)
    vector = Vector(threads, [group, threads.env(ns=1)])
    vector.reset()
    for _ in range(6):
        vector.step()
    assert threads.counters() == {"env_steps": 12, "resets": 3}


def test_what_an_executor_is_handed_inside_a_step_is_part_of_it(bench):
    """As `record.handoff` does it."""
    env = bench.env(ns=3)
    module = bench.module

    class Outer:
        def step(self, action: Any = None) -> Any:
            self.hand_over(env.step)
            return [0, 0], [1.0, 1.0], [False, False], {}

        def reset(self) -> Any:
            self.hand_over(env.reset)

        def hand_over(self, task: Any) -> None:
            origin = module.origin()
            bench.rig.track(1)
            before = module.adopt(*origin)
            task()
            module.release(before)
            bench.rig.track(0)

    bench.rig.track(0)
    bench.patches.wrap(Outer, "step", r.STEP)
    bench.patches.wrap(Outer, "reset", r.RESET)
    outer = Outer()
    outer.reset()
    for _ in range(4):
        outer.step()
    assert bench.counters() == {"env_steps": 8, "resets": 1}
    assert [(e.steps, e.ns) for e in bench.rig.read().envs] == [(4, 12), (4, 12)]
    bench.rig.track(1)
    env.step()
    assert bench.counters()["env_steps"] == 9, "the worker is in no environment any more"


def test_what_an_evaluation_hands_over_is_evaluation(looping):
    env, module = looping.env(ns=3), looping.module

    def evaluate() -> None:
        origin = module.origin()
        looping.rig.track(1)
        before = module.adopt(*origin)
        env.step()
        module.release(before)
        looping.rig.track(0)

    looping.rig.track(0)
    looping.hooked(r.EVALUATE, evaluate)()
    looping.rig.track(1)
    env.step()
    assert looping.counters() == {"env_steps": 2, "eval_env_steps": 1}


def test_real_threads_and_queues(recorder):
    import queue

    rig = Rig(recorder, clock=0, ring_events=1024).open()
    bench = Bench(rig)
    recorder.hook_waits()
    recorder.set_on_env(None, holds)

    class Env:
        def step(self, action: Any) -> Any:
            return 0, 1.0, False, {}

        def reset(self) -> Any: ...

    class Pool:
        def __init__(self, n: int) -> None:
            self.inbox, self.outbox = [queue.Queue() for _ in range(n)], queue.Queue()
            self.threads = [threading.Thread(target=self.work, args=(box,), daemon=True) for box in self.inbox]
            for thread in self.threads:
                thread.start()

        def work(self, box: Any) -> None:
            env = Env()  # nobody else knows it
            while (action := box.get()) is not None:
                self.outbox.put(env.step(action))

        def step(self, actions: Any) -> Any:
            for box in self.inbox:
                box.put(0)
            results = [self.outbox.get() for _ in self.inbox]
            return results, [r[1] for r in results], [r[2] for r in results], {}

        def reset(self) -> Any: ...

    for cls in (Env, Pool):
        bench.patches.wrap(cls, "step", r.STEP)
    try:
        pool = Pool(3)
        for _ in range(200):
            pool.step(None)
        for box in pool.inbox:
            box.put(None)
        for thread in pool.threads:
            thread.join()
        shard = rig.read()
        assert shard.counters["env_steps"] == 600
        assert sorted(env.steps for env in shard.envs) == [200] * 4
    finally:
        recorder.unhook_waits()
        recorder.set_on_env(None, None)
        bench.patches.undo()
        rig.close()


def test_real_actors_in_threads_count_all_their_steps(recorder):
    rig = Rig(recorder, clock=0, ring_events=1024).open()
    bench = Bench(rig)
    recorder.hook_waits()
    recorder.set_on_env(None, holds)

    class Env:
        def step(self, action: Any) -> Any:
            sum(range(action))
            return 0, 1.0, False, {}

    bench.patches.wrap(Env, "step", r.STEP)

    def act(length: int) -> None:
        env = Env()
        for _ in range(300):
            env.step(length)
        stepped.append(env)  # alive to the end: what is still undecided of one that is gone counts

    stepped: list[Any] = []
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(act, [10, 100, 1000, 10000]))
        for env in stepped:
            env.step(1)  # alone: part of none
        assert rig.read().counters["env_steps"] == 1204
    finally:
        recorder.unhook_waits()
        recorder.set_on_env(None, None)
        bench.patches.undo()
        rig.close()


def test_what_holds_what_is_found_within_bounds():
    class Box:
        pass

    inner, outer, far = Box(), Box(), Box()
    for held in (inner, [inner], (0, {"a": inner}), lambda: inner, threading.Thread(target=print, args=(inner,))):
        outer.held = held
        assert holds(outer, inner)
    outer.held = [Box() for _ in range(5000)]
    outer.held.append(inner)
    assert not holds(Box(), inner)
    outer.held = globals()["holds"]
    assert not holds(outer, inner), "a function's globals are no part of it"
    outer.held = gc
    assert not holds(outer, gc.__dict__["collect"])
    chain = inner
    for _ in range(20):
        chain = [chain]
    far.held = chain
    assert not holds(far, inner)


# ---- resets ----


def test_steps_that_only_reset_are_no_steps(bench):
    """What ended in a step is reset by the next one, which does nothing else to it."""
    bench.module.set_on_env(lambda env: True, None)
    flags = [[True, False, False], [False, False, True], [False, True, False], [False, False, False], [True, True, False]]

    class Vector:
        turn = 0

        def step(self, action: Any = None) -> Any:
            done = flags[self.turn]
            self.turn += 1
            return 0, [1.0] * 3, done, [False] * 3, {}

        def reset(self) -> Any: ...

    bench.patches.wrap(Vector, "step", r.STEP)
    bench.patches.wrap(Vector, "reset", r.RESET)
    vector = Vector()
    for _ in flags:
        vector.step()
    assert bench.counters() == {"env_steps": 15 - 3, "autoresets": 3, "episodes": 5}
    vector.turn = 0
    vector.reset()
    vector.step()
    assert bench.counters()["env_steps"] == 15 - 3 + 3, "after a reset of all, all step"
    bench.hooked(r.EVALUATE, vector.step)()
    assert bench.counters()["eval_env_steps"] == 2
    bench.module.set_on_env(None, None)


def test_every_step_counts_where_nothing_else_is_known(bench):
    asked: list[Any] = []
    bench.module.set_on_env(lambda env: asked.append(env) or False, None)
    env = bench.env((0, [1.0, 1.0], [True, True], {}))
    for _ in range(3):
        env.step()
    assert bench.counters() == {"env_steps": 6, "episodes": 6}
    assert asked == [env], "once"
    bench.module.set_on_env(None, None)


def test_a_question_that_fails_or_ends_the_recording_does_no_harm(bench):
    def fail(*args: Any) -> bool:
        raise RuntimeError("ours")

    bench.module.set_on_env(fail, fail)
    assert bench.env().step()[1] == 1.0
    assert bench.rig.read().losses["internal"] == 1
    bench.module.set_on_env(lambda env: bench.module.close(), None)
    assert bench.env().step()[1] == 1.0
    assert bench.module.snapshot() == b""
    bench.module.set_on_env(None, None)


def test_a_reset_counts_where_it_holds_no_other(looping):
    inner = looping.env((0, 1.0, True, {}))

    class Base:
        def reset(self) -> Any:
            return inner.reset()

        def step(self, action: Any = None) -> Any:
            result = inner.step()
            inner.reset()
            return result

    class Derived(Base):
        def reset(self) -> Any:
            return super().reset()

    for cls, name, role in ((Base, "reset", r.RESET), (Base, "step", r.STEP), (Derived, "reset", r.RESET)):
        looping.patches.wrap(cls, name, role)
    env = Derived()
    env.reset()
    assert looping.counters()["resets"] == 1
    env.step()
    assert looping.counters()["resets"] == 2, "within steps too"
    looping.hooked(r.EVALUATE, env.reset)()
    assert looping.counters()["resets"] == 2, "not those of an evaluation"


def test_a_reset_that_fails_is_none(looping):
    class Env:
        def reset(self) -> Any:
            raise ValueError("mine")

    looping.patches.wrap(Env, "reset", r.RESET)
    with pytest.raises(ValueError, match="mine"):
        Env().reset()
    assert "resets" not in looping.counters()


# ---- a result that does not tell which episodes ended ----


def quiet_classes(looping: Bench) -> tuple[Any, Any]:
    """One environment whose episodes last three steps, and a vector of them that gives observations and rewards and no word
    of ends."""

    class Walks:
        def __init__(self) -> None:
            self.steps = 0

        def step(self, action: int) -> Any:
            self.steps += 1
            return [0.0], 1.0, self.steps % 3 == 0, False, {}

        def reset(self) -> Any: ...

    class Quiet:
        def __init__(self, envs: list[Any], call: Any = None) -> None:
            self.envs, self.call = envs, call or (lambda env: env.step(0))

        def step(self, actions: Any) -> Any:
            results = [self.call(env) for env in self.envs]
            return [result[0] for result in results], [result[1] for result in results]

        def reset(self) -> Any: ...

    for cls in (Walks, Quiet):
        looping.patches.wrap(cls, "step", r.STEP)
    return Walks, Quiet


def test_where_a_vector_environment_does_not_tell_ends_those_inside_it_do(looping):
    walks, quiet = quiet_classes(looping)
    vector = quiet([walks() for _ in range(4)])
    for _ in range(7):  # the first call already: it is not known by then
        vector.step(None)
    assert looping.counters() == {"env_steps": 29, "episodes": 4 * 2}


def test_of_layers_that_tell_ends_the_outermost_counts(looping):
    walks, quiet = quiet_classes(looping)

    class Wrapper:
        def __init__(self) -> None:
            self.env = walks()

        def step(self, action: int) -> Any:
            observation, reward, *_ = self.env.step(action)
            return observation, reward, True, False, {}  # ends each time, whatever is in it

        def reset(self) -> Any: ...

    looping.patches.wrap(Wrapper, "step", r.STEP)
    vector = quiet([Wrapper()])
    for _ in range(6):
        vector.step(None)
    assert looping.counters() == {"env_steps": 7, "episodes": 6}


def test_ends_inside_other_threads_are_heard_too(looping):
    walks, quiet = quiet_classes(looping)

    def elsewhere(env: Any) -> Any:
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(env.step(0)))
        thread.start()
        thread.join()
        return found[0]

    vector = quiet([walks(), walks()], elsewhere)
    looping.module.set_on_env(None, holds)
    try:
        for _ in range(6):
            vector.step(None)
        assert looping.counters() == {"env_steps": 13, "episodes": 4}
    finally:
        looping.module.set_on_env(None, None)


def test_an_environment_that_tells_its_ends_is_believed_when_none_came(looping):
    walks, quiet = quiet_classes(looping)

    class Endless(quiet):
        def step(self, actions: Any) -> Any:
            observations, rewards = super().step(actions)
            return observations, rewards, [False] * len(rewards), {}

    looping.patches.wrap(Endless, "step", r.STEP)
    vector = Endless([walks(), walks()])
    for _ in range(6):
        vector.step(None)
    assert looping.counters() == {"env_steps": 13}
