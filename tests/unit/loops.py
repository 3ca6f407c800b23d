"""A training loop recorded by hand: phases, stretches between calls, waits, a container, samples on two threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.analyse.limits import Limits
from hotloop.model import phase as ph
from hotloop.model import shard as m
from hotloop.model.finding import Finding, Gain
from hotloop.model.probe import Curve, OptimizerCost, Point, Probes
from hotloop.model.session import ENDED, Events, Process, SessionData, Source

from .shards import ROOT, node, shard

MS = 1_000_000
FILE, LIBRARY = "/home/me/rl/train.py", "/opt/lib/python3.11/site-packages/torch/nn/linear.py"


def label(name: str, phase: int = 0, kind: int = m.USER, after: int = 0, owns: bool = True) -> m.Label:
    return m.Label(name, kind, 0, 0, phase=phase, after=after, owns=owns)


# name, parent path, phase, kind, milliseconds of its own; 1,000 ms of loop and 250 ms of start-up
ROWS = (
    ("collect/env_step", 0, ph.COLLECT, m.USER, 100),  # 1
    ("Grid.step", 1, 0, m.USER, 200),  # 2
    ("(waiting: sleep)", 2, 0, m.WAIT, 50),  # 3
    ("collect/policy", 0, ph.COLLECT, m.USER, 50),  # 4
    ("collect/other", 0, ph.COLLECT, m.INFERRED, 30),  # 5
    ("learn/train", 0, ph.LEARN, m.USER, 20),  # 6, a container
    ("learn/backward", 6, ph.LEARN, m.USER, 400),  # 7
    ("learn/optimizer", 6, ph.LEARN, m.USER, 120),  # 8
    ("log/print", 0, ph.LOG, m.USER, 10),  # 9
    ("(start-up)", 0, ph.STARTUP, m.USER, 250),  # 10
    ("(profiler)", 0, 0, m.PROFILER, 20),  # 11
)


def make_session(**meta: object) -> SessionData:
    labels = [ROOT, *(label(name, phase, kind, owns=name != "learn/train") for name, _, phase, kind, _ in ROWS)]
    paths = [m.Path(0, 0), *(m.Path(parent, i) for i, (_, parent, *_) in enumerate(ROWS, 1))]
    nodes = [node(0, 0, 0), *(node(0, i, row[4] * MS, 10, 10) for i, row in enumerate(ROWS, 1))]
    nodes += [node(1, 2, 500 * MS, 10, 10)]
    step, back, inner, comprehension = (
        m.Place(FILE, "Grid.step", 11, 10),
        m.Place(FILE, "learn", 30, 25),
        m.Place(LIBRARY, "Linear.forward", 134, 130),
        m.Place(FILE, "Grid.step.<locals>.<genexpr>", 11, 11),
    )
    samples = m.Samples(
        MS,
        100,
        0,
        (step, back, inner, comprehension),
        ((-1, 0), (-1, 1), (1, 2), (0, 3)),
        (m.Sample(0, 2, 0, 20, False), m.Sample(3, 2, 0, 10, False), m.Sample(2, 7, 0, 40, False), m.Sample(0, 2, 1, 5, False)),
    )
    one = shard(labels, paths, nodes, samples=samples, counters={"env_steps": 100, "updates": 10, "samples": 3200})
    one = replace(one, tracks=tuple(replace(t, name="MainThread" if t.id == 0 else "worker") for t in one.tracks))
    columns = {name: np.empty(0, kind) for name, kind in (("start_ns", np.int64), ("dur_ns", np.int64))}
    columns |= {name: np.empty(0, np.uint32) for name in ("shard", "track", "path", "iteration", "flags")}
    return SessionData(
        Path("runs/hand"),
        {"name": "hand", "cwd": "/home/me/rl", **meta},
        (one,),
        (Process(0, 1, "", ENDED),),
        Events(**columns),
        (),
        sources={FILE: Source(text={11: "    return sum(x * x for x in board)", 30: "loss.backward()"})},
        hooks=(
            {"pid": "1", "integration": "torch", "state": "live", "detail": "torch: 27 hooks"},
            {"pid": "1", "integration": "torchrl", "state": "failed", "detail": "torchrl: ImportError: \x1b[31mno"},
            {"pid": "2", "integration": "torchrl", "state": "failed", "detail": "torchrl: ImportError: \x1b[31mno"},
        ),
    )


def make_loop(**meta: object) -> tuple[SessionData, Diagnosis]:
    session = make_session(**meta)
    return session, diagnose(session)


def with_findings(diagnosis: Diagnosis, findings: Sequence[Finding]) -> Diagnosis:
    """The same, with these findings instead of its own."""
    other = replace(diagnosis)
    vars(other)["findings"] = tuple(findings)  # where the cached property keeps them
    return other


def with_limits(diagnosis: Diagnosis, limits: Limits) -> Diagnosis:
    """The same, with these limits instead of its own."""
    other = replace(diagnosis)
    vars(other)["limits"] = limits
    return other


def curve(network: str = "Net", rows: int = 1, costs: Sequence[int] = (226, 228, 230, 234), **more: object) -> Curve:
    """Costs in microseconds, of once, twice, four times, … as many rows."""
    points = tuple(Point(rows << i, us * 1000.0, 2000.0) for i, us in enumerate(costs))
    return replace(Curve(network, "", ph.COLLECT, rows, float(rows), 100, False, 1000, points), **more)


PROBES = Probes(
    (curve(), curve("Net", 64, (700, 900, 1300, 2100, 3600), method="evaluate", phase=ph.LEARN, grad=True)),
    (OptimizerCost("Adam", 12, 48_000, 307e3, {"foreach": 231e3, "fused": 83e3}), OptimizerCost("Lion", 1, 4000, 20e3)),
    threads=1,
    seconds=0.5,
)


def finding(cause: str = "env-step-hot", mid: float = 2.4, **more: object) -> Finding:
    base = Finding(
        cause=cause, title="Grid.step takes 62 % of the loop", span="collect/env_step", file="train.py", line=11,
        function="Grid.step", share=0.62, gain=Gain(mid * 0.8, mid, mid * 1.1), evidence=("30 of 70 samples", "3 calls a step"),
        action="Vectorise the board.", verify="hotloop ab 'python train.py' 'python fixed.py'",
    )  # fmt: skip
    return replace(base, **more)
