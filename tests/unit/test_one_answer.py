"""A report that contradicts itself fails: every view of random sessions says the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from hotloop.model import phase as ph
from hotloop.model import shard as m
from hotloop.model.job import order_processes
from hotloop.model.session import ENDED, Events, Process, SessionData

from ..one_answer import check_one_answer
from .loops import label, make_session
from .shards import ROOT, node, shard

STARTUP = label("(start-up)", ph.STARTUP)
LABELS = [
    ROOT, STARTUP, label("(shut-down)", ph.STARTUP), label("collect/env_step", ph.COLLECT), label("Env.step"),
    label("collect/rollout", ph.COLLECT, owns=False), label("collect/policy", ph.COLLECT),
    label("learn/train", ph.LEARN, owns=False), label("learn/backward", ph.LEARN),
    label("eval/evaluate", ph.EVAL, owns=False), label("log/print", ph.LOG),
    label("collect/other", ph.COLLECT, m.INFERRED), label("learn/other after collect", ph.LEARN, m.INFERRED, ph.COLLECT),
    label("(waiting: sleep)", 0, m.WAIT), label("(waiting: pipe)", 0, m.WAIT), label("(waiting: lock)", 0, m.WAIT),
    label("(handed over)", 0, m.HANDOFF), label(m.GC_PAUSE, 0, m.GARBAGE), label("(profiler)", 0, m.PROFILER),
    label("mine"), label("yours"),
]  # fmt: skip
LEAVES = (m.PROFILER, m.GARBAGE, m.INFERRED)
OUTSIDE = [i for i, x in enumerate(LABELS) if x.phase == ph.STARTUP]
INSIDE = [i for i in range(1, len(LABELS)) if i not in OUTSIDE]
TIMES = st.integers(0, 10**11)


@st.composite
def processes(draw, number: int, hooked: bool):
    """One process: a random tree of spans on up to three threads, work that was counted, iterations."""
    paths = [m.Path(0, 0)]
    if hooked:
        paths += [m.Path(0, i) for i in OUTSIDE]
    for _ in range(draw(st.integers(0, 16))):
        parents = [i for i, path in enumerate(paths) if LABELS[path.label].kind not in LEAVES and path.label not in OUTSIDE]
        paths.append(m.Path(draw(st.sampled_from(parents)), draw(st.sampled_from(INSIDE))))
    nodes = [node(0, 0, draw(TIMES))]
    for track in range(draw(st.integers(1, 3))):
        there = {0} | ({1} if hooked and track == 0 else set())
        for path in range(1, len(paths)):  # a span below another was opened in it
            if path in there or (paths[path].parent in there and draw(st.booleans())):
                there.add(path)
                own = draw(TIMES) + (1 if path == 1 else 0)
                nodes.append(node(track, path, own, draw(st.integers(1, 50)), own))
        if track:
            nodes.append(node(track, 0, draw(TIMES)))
    counts = st.integers(0, 10**6)
    names = ("env_steps", "updates", "episodes", "resets", "samples", "frames")
    counters = {name: draw(counts) for name in names if draw(st.booleans())}
    life = sum(n.self_ns for n in nodes if n.track == 0)
    work = sorted((draw(st.integers(0, life)), draw(st.integers(0, life))))
    closed = draw(st.integers(0, 4))
    rows = tuple(m.Iteration(i, 1, i * 1000, (i + 1) * 1000, {0: 10}, {}, {"env_steps": draw(counts)}) for i in range(closed))
    made = shard(
        LABELS, paths, nodes, id=number, pid=100 + number, counters=counters, iterations=rows, iterations_closed=closed,
        first_work_ns=1 + work[0] if counters else 0, last_work_ns=1 + work[1] if counters else 0, end_ns=life,
        cost_inside_ps=draw(st.integers(0, 10**6)), cost_outside_ps=draw(st.integers(0, 10**6)),
    )  # fmt: skip
    tracks = tuple(m.Track(t.id, t.name, t.tid, False, 1, t.lifetime_ns, life, 0, 0) for t in made.tracks)
    return replace(made, tracks=tracks)


@st.composite
def sessions(draw):
    hooked = draw(st.booleans())
    shards = [draw(processes(i + 1, hooked)) for i in range(draw(st.integers(1, 3)))]
    shards = [shards[i] for i in order_processes(shards, 101)]
    empty = np.empty(0, np.uint32)
    events = Events(empty, empty, empty, np.empty(0, np.int64), np.empty(0, np.int64), empty, empty)
    kept = tuple(Process(i, s.pid, "", ENDED) for i, s in enumerate(shards))
    return SessionData(Path("runs/random"), {"name": "random", "pid": 101}, tuple(shards), kept, events, ())


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
@given(sessions())
def test_every_view_of_a_random_session_says_the_same(session):
    check_one_answer(session)


def test_every_view_of_a_training_loop_says_the_same():
    check_one_answer(make_session())
