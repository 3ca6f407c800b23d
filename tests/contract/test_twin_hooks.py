"""Whatever a training loop does, both recorders label it the same, and its time adds up."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.model import role as r
from hotloop.record import twin
from hotloop.store.shard import decode

from .conftest import Bench, Rig, native, path_names
from .test_twins import describe

ROLES = {
    "print": r.PRINT, "policy": r.FORWARD, "loss": r.LOSS, "backward": r.BACKWARD, "copy": r.COPY,
    "optimizer": r.OPTIMIZER, "list": r.FROM_LIST, "store": r.STORE, "sample": r.SAMPLE, "save": r.SAVE,
    "advantage": r.ADVANTAGE, "rollout": r.ROLLOUT, "train": r.TRAIN, "evaluate": r.EVALUATE,
    "render": r.RENDER,
}  # fmt: skip
ticks = st.one_of(st.integers(0, 1000), st.sampled_from([10_000_000, 40_000_000]))
leaf = st.one_of(
    st.tuples(st.just("tick"), ticks),
    st.tuples(st.just("track"), st.integers(0, 1)),
    st.tuples(st.just("within"), st.integers(0, 3)),
    st.tuples(st.just("garbage"), st.none()),
    st.tuples(st.just("handed over"), st.integers(0, 1)),
    st.tuples(st.sampled_from(["step", "reset", "pause", "resume", "end_track"]), st.none()),
)
calls = st.sampled_from(
    [
        *sorted(ROLES),
        "env_step",
        "env_step",
        "env_reset",
        "wrapped_step",
        "super_step",
        "maybe_step",
        "lock",
        "wait",
        "span",
        "fail",
    ]
)
body = st.recursive(
    st.lists(
        st.one_of(st.tuples(st.just("tick"), ticks), st.tuples(calls, st.tuples(st.tuples(st.just("tick"), ticks)))), max_size=6
    ),
    lambda inner: st.lists(st.one_of(leaf, st.tuples(calls, inner)), max_size=6),
    max_leaves=12,
)


class OwnError(Exception):
    pass


def call(hooked: Any, where: bool, *args: Any) -> Any:
    """Two places that call models, in one function: so near, their addresses cannot be taken for one another."""
    if where:
        return hooked(*args)
    return hooked(*args)


class Program:
    """Runs a program on one recorder."""

    def __init__(self, rig: Rig) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.bench = bench = Bench(rig.open(directory=self.folder.name))
        run = self.run
        self.hooks = {name: bench.hooked(role, lambda ops, *_: run(ops), self.after, 2) for name, role in ROLES.items()}
        self.wait, self.lock = bench.patches.waiting(run, "pipe"), bench.patches.waiting(run, "lock")
        self.calls = 0
        flags = iter([(0, [1.0, 2.0], [True, False], {}), (0, 1.0, False, False, {}), (0, 1.0, True, False, {})] * 1000)

        class Env:
            def step(self, ops: Any) -> Any:
                run(ops)
                return next(flags)

            def reset(self, ops: Any = ()) -> Any:
                run(ops)

        class Derived(Env):
            def step(self, ops: Any) -> Any:
                return super().step(ops)

        class Wrapper:
            def step(self, ops: Any) -> Any:
                return Env().step(ops)

            def reset(self) -> None: ...

        class Maybe:
            def step(self, ops: Any) -> Any:
                run(ops)
                return (0, 1.0, False) if len(ops) > 1 else None

        for cls in (Env, Derived, Wrapper):
            bench.patches.wrap(cls, "step", r.STEP)
        bench.patches.try_out(Maybe, "step")
        bench.module.set_on_env(lambda env: type(env) is Env, lambda outer, inner: type(outer) is Wrapper)
        bench.patches.wrap(Env, "reset", r.RESET)
        self.env, self.derived, self.wrapper, self.maybe = Env(), Derived(), Wrapper(), Maybe()

    def after(self, args: tuple[Any, ...], result: Any, phase: int) -> None:
        self.bench.tick(3)
        self.bench.module.count(f"~phase {phase}")

    def run(self, ops: Any) -> None:
        rig, module = self.bench.rig, self.bench.module
        for what, value in ops:
            if what == "tick":
                rig.tick(value)
            elif what == "track":
                module.use_track(value)
            elif what == "within":
                module.within(value)
            elif what == "handed over":
                origin = module.origin()
                module.use_track(value)
                if origin is not None:
                    before = module.adopt(*origin)
                    self.env.step([("tick", 7)])
                    module.release(before)
            elif what == "garbage":
                module.gc_pause("start", {})
                rig.tick(5)
                module.gc_pause("stop", {})
            elif what in ("step", "reset", "pause", "resume", "end_track"):
                getattr(module, what)()
            elif what == "fail":
                self.fail(value)
            elif what == "span":
                with module.profile("mine"):
                    self.run(value)
            elif what in ("wait", "lock"):
                getattr(self, what)(value)
            elif what in ROLES:
                self.calls += 1
                call(self.hooks[what], bool(self.calls & 1), value)
            elif what == "env_reset":
                self.env.reset(value)
            else:
                {"env_step": self.env, "super_step": self.derived, "wrapped_step": self.wrapper, "maybe_step": self.maybe}[
                    what
                ].step(value)

    def fail(self, ops: Any) -> None:
        def failing(_: Any) -> None:
            self.run(ops)
            raise OwnError

        with pytest.raises(OwnError):
            call(self.bench.hooked(r.FORWARD, failing), True, ops)

    def result(self, program: Any) -> dict[str, Any]:
        module = self.bench.module
        module.use_track(0)
        module.within(0)
        for where in (False, True):  # what the two places did in earlier programs is forgotten
            call(self.hooks["policy"], where, [])
            self.env.step([])
        self.run(program)
        module.resume()
        for which in (1, 0):
            module.use_track(which)
            module.within(0)
        self.bench.tick(1)
        shard = decode(module.snapshot())
        for which in (1, 0):  # exits still owed are nobody's in the next program
            module.use_track(which)
            module.end_track()
        module.use_track(-1)
        module.close()
        module.set_on_env(None, None)
        (file,) = Path(self.folder.name).iterdir()
        whole = decode(file.read_bytes())
        self.folder.cleanup()
        self_ns = [0] * len(shard.tracks)
        for node in shard.nodes:
            self_ns[node.track] += node.self_ns
        return describe(shard) | {
            "self": self_ns,
            "lifetimes": [track.lifetime_ns for track in shard.tracks],
            "names": [path_names(shard, node.path) for node in shard.nodes],
            "envs": shard.envs,
            "closed": (whole.iterations_closed, whole.iterations, whole.counters, whole.envs, whole.problems),
        }


@given(body)
@settings(max_examples=200, deadline=None)
def test_both_recorders_label_a_program_the_same(program):
    first, second = (Program(Rig(module)).result(program) for module in (native, twin))
    for key in first:
        assert first[key] == second[key], key


@pytest.mark.parametrize("recorder", [native, twin], ids=["native", "twin"])
@pytest.mark.parametrize("drift", [0, 1])
@given(program=body)
@settings(max_examples=100, deadline=None)
def test_the_time_of_a_hooked_program_adds_up(recorder, drift, program):
    left = Program(Rig(recorder, drift, long_ns=2000)).result(program)
    assert left["problems"] == ()
    assert left["accounts"][0] == left["accounts"][1]
    assert "internal" not in left["losses"]
    assert left["self"] == left["lifetimes"]
    closed, rows, _, _, problems = left["closed"]
    assert problems == ()
    assert closed == sum(row.merged for row in rows)
    for row in rows:
        most = len(left["tracks"]) * (row.end_ns - row.start_ns)
        assert all(0 <= ns <= most for ns in row.self_ns.values())
    for node in left["nodes"]:
        assert node.count == sum(node.histogram)
        assert 0 <= node.self_ns < 10**12
        assert node.count == 0 or node.min_ns <= node.max_ns
