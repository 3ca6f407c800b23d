"""One suite over both recorders: every test here gets a `rig`, once with the native recorder and once with its twin.

Time and threads are moved by hand, so every number is exact.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hotloop.integrations import _patch as p
from hotloop.model import role as r
from hotloop.model import shard as m
from hotloop.model.ledger import Ledger, fold
from hotloop.record import _zone as native  # where this fails, the C extension was not built: the tests need a compiler
from hotloop.record import twin
from hotloop.record.recorder import DEFAULTS
from hotloop.store.schema import CLOCK_TEST
from hotloop.store.shard import decode

RECORDERS = [
    pytest.param(native, id="native"),
    pytest.param(twin, id="twin"),
]


class Rig:
    """A recorder with a clock and threads that are moved by hand."""

    def __init__(self, module: ModuleType, drift: int = 0, **options: Any) -> None:
        self.module = module
        self.t = 1_000
        self.drift = drift  # by how much each reading of the clock moves it
        self.options = {
            **DEFAULTS,
            "clock": CLOCK_TEST,
            "long_ns": 0,
            "log_events": 4096,
            "ring_events": 1024,
            "iter_units": 1,
            **options,
        }

    def open(self, **options: Any) -> Rig:
        self.module.set_time(self.t, self.drift)
        self.module.open(**{**self.options, **options})
        return self

    def forget_earlier(self) -> Rig:
        """Spans that an earlier test left open have exits outstanding; use them up."""
        while "stray_exit" not in self.read().losses:
            for _ in range(1000):
                self.exit("drain")
        return self.open()

    def tick(self, ns: int) -> None:
        if self.drift:
            self.t = self.module.now()
        self.t += ns
        self.module.set_time(self.t, self.drift)

    def enter(self, name: str) -> None:
        self.module.profile(name).__enter__()

    def exit(self, name: str) -> None:
        self.module.profile(name).__exit__(None, None, None)

    def span(self, name: str, ns: int) -> None:
        self.enter(name)
        self.tick(ns)
        self.exit(name)

    def track(self, which: int) -> None:
        self.module.use_track(which)

    def read(self) -> m.Shard:
        shard = decode(self.module.snapshot())
        assert shard.problems == ()
        return shard

    def fold(self) -> Ledger:
        return fold([self.read()])

    def node(self, *names: str, track: int = 0) -> m.Node:
        """The node of a path given by its labels."""
        shard = self.read()
        for node in shard.nodes:
            if node.track == track and path_names(shard, node.path) == names:
                return node
        raise AssertionError(f"no node {names} on track {track}")

    def operation(self, name: str) -> Any:
        return next(o for o in self.fold().operations if o.name == name)

    def close(self) -> None:
        self.module.use_track(-1)
        self.module.close()


class Bench:
    """A rig with hooks: functions that take a given time, each with a role."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.module = rig, rig.module
        self.patches = p.Patches(rig.module, note=pytest.fail)
        p.gap_zones(rig.module)

    def tick(self, ns: int) -> None:
        self.rig.tick(ns)

    def work(self, ns: int = 0, *rest: Any) -> int:
        """The function behind most hooks."""
        self.rig.tick(ns)
        return ns

    def hooked(self, role: r.Role, function: Any = None, after: Any = None, every: int = 1) -> Any:
        return self.patches.hooked(function or self.work, role, after, every)

    def env(self, result: Any = None, ns: int = 10) -> Any:
        """An environment of a class of its own, hooked."""
        rig = self.rig

        class Env:
            def step(self, action: Any = None) -> Any:
                rig.tick(ns)
                return (0, 1.0, False, False, {}) if result is None else result

            def reset(self) -> Any:
                rig.tick(ns)
                return 0, {}

        self.patches.wrap(Env, "step", r.STEP)
        self.patches.wrap(Env, "reset", r.RESET)
        return Env()

    def times(self, track: int = 0) -> dict[str, int]:
        """Own time by path, in nanoseconds; the books close."""
        shard = self.rig.read()
        nodes = [node for node in shard.nodes if node.track == track]
        assert sum(node.self_ns for node in nodes) == shard.tracks[track].lifetime_ns
        assert all(node.count == sum(node.histogram) for node in nodes)
        return {" > ".join(path_names(shard, n.path)): n.self_ns for n in nodes if n.self_ns}

    def calls(self) -> dict[str, int]:
        shard = self.rig.read()
        return {" > ".join(path_names(shard, n.path)): n.count for n in shard.nodes if n.count}

    def counters(self) -> dict[str, int]:
        return {name: n for name, n in self.rig.read().counters.items() if n}


def path_names(shard: m.Shard, path: int) -> tuple[str, ...]:
    names = []
    while path:
        names.append(shard.label_of(path).name)
        path = shard.paths[path].parent
    return tuple(reversed(names))


@pytest.fixture(autouse=True)
def leave_no_callback_behind() -> Any:
    yield
    for module in (native, twin):
        module.set_callbacks(yield_check=None, memory_span=None, decorate=None)
        module.set_on_step(None)
        module.set_on_loop(None)
        module.watch_classes((), None)


@pytest.fixture(params=RECORDERS)
def recorder(request: pytest.FixtureRequest) -> ModuleType:
    return request.param


@pytest.fixture
def rig(recorder: ModuleType) -> Any:
    rig = Rig(recorder).open().forget_earlier()
    yield rig
    rig.close()


@pytest.fixture
def disk_rig(recorder: ModuleType, tmp_path: Path) -> Any:
    rig = Rig(recorder, directory=str(tmp_path)).open()
    yield rig
    rig.close()


@pytest.fixture
def bench(rig):
    return Bench(rig)


@pytest.fixture
def looping(bench):
    """A bench whose training loop has begun, by a step that took no time."""
    bench.env(ns=0).step()
    return bench
