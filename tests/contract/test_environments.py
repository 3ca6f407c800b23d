"""Environments in both recorders: events, layers, and what a step counts."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from hotloop.integrations import _patch as p


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

    looping.patches.wrap(Wrapper, "step", p.STEP)
    looping.patches.wrap(Wrapper, "reset", p.RESET)
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
        looping.patches.wrap(cls, "step", p.STEP)
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
     ((b"\x01\x00\x01",), 2), ((array("b", [1, 0, 0]), array("b", [0, 1, 0])), 2), ((array("d", [1, 1, 1]),), 0),
     ((array("d", [1, 1, 1]), b"\x00\x01\x00"), 1), ((None, b"\x00\x01\x01"), 2), ((object(),), 0), ((1,), 0),
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
    looping.hooked(p.EVALUATE, lambda: [env.step(), env.reset()])()
    env.step()
    assert looping.counters() == {"env_steps": 3, "eval_env_steps": 2, "episodes": 2, "resets": 1}
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
    looping.hooked(p.EVALUATE, first.step)()
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
