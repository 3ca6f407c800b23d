"""Whatever is done to both recorders, they write the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.model import shard as m
from hotloop.model.ledger import fold
from hotloop.record import twin
from hotloop.store.shard import decode

from .conftest import Rig, native, path_names

labels = st.sampled_from(["a", "b", "c", "d"])
operation = st.one_of(
    st.tuples(st.just("enter"), labels),
    st.tuples(st.just("exit"), labels),
    st.tuples(st.just("leave"), st.none()),
    st.tuples(st.just("tick"), st.integers(0, 10_000)),
    st.tuples(st.just("track"), st.integers(0, 3)),
    st.tuples(st.just("step"), st.none()),
    st.tuples(st.just("count"), st.tuples(st.sampled_from(["env_steps", "mine"]), st.integers(-5, 5))),
    st.tuples(st.just("lift"), st.tuples(st.integers(0, 2), st.booleans())),
    st.tuples(st.just("lower"), st.none()),
    st.tuples(st.just("drop"), st.none()),
    st.tuples(st.just("adopt"), st.none()),
    st.tuples(st.just("release"), st.none()),
    st.tuples(st.just("pause"), st.none()),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("reset"), st.none()),
    st.tuples(st.just("end_track"), st.none()),
    st.tuples(st.just("memory"), st.integers(0, 1 << 30)),
)


def drive(rig: Rig, program: list[tuple[str, Any]]) -> Any:
    """Run a program; answers everything it left behind, without what must differ (ids, pids, calendar time)."""
    module = rig.module
    rig.open()
    tokens: list[Any] = []
    opened: dict[int, list[str]] = {}
    where = 0
    module.use_track(0)
    origin = None
    for what, value in program:
        stack = opened.setdefault(where, [])
        if what == "enter":
            rig.enter(value)
            stack.append(value)
        elif what == "exit":
            rig.exit(value)
            if value in stack:
                while stack.pop() != value:
                    pass
        elif what == "leave" and stack:
            rig.exit(stack.pop())
        elif what == "tick":
            rig.tick(value)
        elif what == "track":
            where = value
            module.use_track(value)
        elif what == "step":
            module.step()
        elif what == "count":
            module.count(*value)
        elif what == "lift":
            tokens.append(module.lift(min(value[0], module.depth()), value[1]))
        elif what == "lower" and tokens:
            token = tokens.pop(0)
            if token is not None:
                module.lower(token)
            del token
        elif what == "drop" and tokens:
            tokens.pop()
        elif what == "adopt":
            origin = module.here() or origin
            if origin:
                module.adopt(*(origin if origin == module.here() else (9, 9)))
        elif what in ("release", "pause", "resume", "reset", "end_track"):
            getattr(module, what)()
        elif what == "memory":
            module.note_memory(value, value + 1, value + 2, bool(value & 1))
    module.resume()
    module.use_track(0)
    rig.tick(1)
    data = module.snapshot()
    shard = decode(data)
    tokens.clear()
    module.use_track(-1)
    module.close()
    return describe(shard)


def describe(shard: m.Shard) -> dict[str, Any]:
    """All of a shard that two recorders must agree on."""
    books = fold([shard])
    return {
        "labels": [(x.name, x.kind, x.phase, x.after, x.owns) for x in shard.labels],
        "paths": [path_names(shard, i) for i in range(len(shard.paths))],
        "nodes": shard.nodes,
        "tracks": [(t.name, t.alive, t.lifetime_ns, t.end_ns, t.entered, t.depth) for t in shard.tracks],
        "open": sorted((s.track, s.path, s.start_ns) for s in shard.open_spans),
        "rows": shard.iterations,
        "counters": shard.counters,
        "losses": shard.losses,
        "snapshots": shard.snapshots,
        "events": (shard.logged_events, shard.ring_events),
        "times": (shard.start_ns, shard.end_ns, shard.paused_ns, shard.epoch, shard.first_work_ns, shard.last_work_ns),
        "operations": [(o.name, o.calls, o.open, o.busy_ns, o.self_ns, o.union_ns, o.waiting_ns) for o in books.operations],
        "problems": shard.problems,
        "accounts": (shard.attempted, shard.recorded + shard.dropped + shard.open_count),
    }


@given(st.lists(operation, max_size=60))
@settings(max_examples=300, deadline=None)
def test_native_and_python_recorder_write_the_same(program):
    first, second = drive(Rig(native), program), drive(Rig(twin), program)
    for key in first:
        assert first[key] == second[key], key
    assert first["problems"] == ()


@pytest.mark.parametrize("recorder", [native, twin], ids=["native", "twin"])
@pytest.mark.parametrize("drift", [0, 1])
@given(program=st.lists(operation, max_size=80))
@settings(max_examples=150, deadline=None)
def test_the_books_close_whatever_happens(recorder, drift, program):
    """With a clock that moves at every reading, too: nothing may be accounted backwards."""
    left = drive(Rig(recorder, drift, long_ns=2000, log_events=4096), program)
    assert left["problems"] == ()
    assert left["accounts"][0] == left["accounts"][1]
    for name, _, lifetime, end_ns, _, _ in left["tracks"]:
        assert 0 <= lifetime <= end_ns, name
    for name, calls, _, busy, self_ns, union, _ in left["operations"]:
        assert union <= busy or calls == 0, name
        assert self_ns >= 0
    for node in left["nodes"]:
        assert node.count == sum(node.histogram)
        assert node.count == 0 or node.min_ns <= node.max_ns < 10**9
