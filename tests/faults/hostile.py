"""Sessions that somebody hands us, and what must hold whatever is in them.

What lives here: small sessions to damage (`make_corpus`), and the way one is read and checked (`examine`).
Invariant: `examine` knows nothing of how a session was damaged; what it asserts holds for any bytes at all.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.errors import UnreadableError
from hotloop.model.session import SessionData
from hotloop.present.detailed import session_report
from hotloop.present.html import report_html
from hotloop.present.json import report_data
from hotloop.present.terminal import report_text
from hotloop.present.trace import export
from hotloop.printing.blocks import VIEWS as BLOCKS
from hotloop.printing.blocks import view_text
from hotloop.store.reader import read_session

ABSURD_S = 10 * 366 * 86400  # nobody trains for ten years
SMALL = "budget=1 << 20, ring_events=64, log_events=256, iter_units=1, child_ring_events=64, child_iter_units=1"

SEEDS = {
    "threads": """
        import threading
        def work():
            for _ in range(5):
                with profile("env_step"), profile("physics"): time.sleep(0.0002)
        for i in range(12):
            with profile("rollout"):
                threads = [threading.Thread(target=work, name=f"env-{n}") for n in range(2)]
                for t in threads: t.start()
                for t in threads: t.join()
            with profile("update", track_memory=True):
                with profile("forward"), profile("layer"): bytearray(1 << 20)
            count("env_steps", 10); count("updates"); count("reward", -3)
            step()
        with profile("long"): time.sleep(0.03)
        with profile("long"): time.sleep(0.03)
        def again(n):
            with profile("recursion"): n and again(n - 1)
        again(5)
        stop()
    """,
    "tasks": """
        import asyncio
        async def request(i):
            with profile("request"):
                with profile("prepare"): pass
                await asyncio.sleep(0.002)
        @profile_function("batches")
        def batches():
            for i in range(4):
                with profile("load"): pass
                yield i
        def held():
            with profile("held"): yield 1
        async def main():
            with profile("gather"): await asyncio.gather(*(request(i) for i in range(8)))
        for _ in range(3):
            asyncio.run(main())
            for _ in batches():
                with profile("train"): pass
            list(held())
            step()
        stop()
    """,
    "killed": """
        import asyncio, os, signal, threading
        def spin():
            with profile("worker"):
                while True:
                    with profile("a"), profile("b"): time.sleep(0.0001)
        threading.Thread(target=spin, name="spinner", daemon=True).start()
        async def waits():
            with profile("awaiting"): await asyncio.Event().wait()
        async def main():
            task = asyncio.create_task(waits())
            await asyncio.sleep(0.01)
            with profile("open at death"), profile("inner"): os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(20):
            with profile("finished"): count("env_steps")
            step()
        asyncio.run(main())
    """,
    "processes": """
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        with ThreadPoolExecutor(2) as pool:
            with profile("handing over"): list(pool.map(env, range(4)))
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            with profile("rollout"): list(pool.map(env, range(6)))
        env(0)
        step()
        stop()
    """,
}


def make_corpus(folder: Path) -> dict[str, Path]:
    """Every seed by both recorders, each in a process of its own; answers the session directories."""
    sessions = {}
    for name, code in SEEDS.items():
        for recorder in ("native", "python"):
            where = folder / f"{name}-{recorder}"
            where.mkdir(parents=True)
            lines = [line.removeprefix("        ") for line in code.splitlines()]
            (where / "train.py").write_text(
                f"import time\nfrom hotloop import *\ndef env(i):\n    with profile('env_step'): time.sleep(0.001)\n"
                f"start('seed', {SMALL})\n" + "\n".join(lines)
            )
            environment = os.environ | {"HOTLOOP_RECORDER": recorder}
            done = subprocess.run([sys.executable, "train.py"], cwd=where, env=environment, capture_output=True, timeout=120)
            assert done.returncode == (-signal.SIGKILL if name == "killed" else 0), done.stderr
            (sessions[f"{name}-{recorder}"],) = (where / "runs").iterdir()
    return sessions


# ---- reading, and what must hold ----


VIEWS: dict[str, Callable[[SessionData, Diagnosis], str]] = {
    "text": lambda _, report: report_text(report, 100),
    "html": lambda _, report: report_html(report),
    "chrome": lambda session, _: "".join(export(session, "chrome").pieces),
    "speedscope": lambda session, _: "".join(export(session, "speedscope").pieces),
    "collapsed": lambda session, _: "".join(export(session, "collapsed").pieces),
    "analyze": lambda _, report: json.dumps(session_report(report), allow_nan=False),
    "blocks": lambda _, report: "".join(view_text(v, report.learner, report.ledger, report.resources) for v in BLOCKS),
}


def examine(path: Path, views: Iterable[str] = tuple(VIEWS)) -> str:
    """Read a session as `hotloop report` does and check what must hold: "read", "partial" or "refused"."""
    try:
        session = read_session(path)
    except UnreadableError as error:
        assert str(error).strip(), "refused without a reason"
        assert str(error).isprintable(), f"not one line: {error!s:.200}"
        return "refused"
    assert all(text.isprintable() for text in session.problems), "a problem is not one line"
    assert len(session.problems) <= 100, "nobody reads that many problems"
    report = diagnose(session)
    data = json.loads(json.dumps(report_data(report), allow_nan=False))
    check_numbers(data, "")
    check_books(session, report, data)
    for view in views:
        VIEWS[view](session, report).encode("utf-8")  # fails on a lone surrogate
    return "partial" if session.problems else "read"


MEASURES = ("_s", "_ns", "_mb", "seconds", "share", "coverage", "calls", "open", "concurrency")
ONE_RUN = ("wall_s", "loop_s", "min_s", "max_s", "p50_s", "p95_s", "p99_s", "lifetime_s", "duration_s", "start_s")


def check_numbers(data: Any, key: str) -> None:
    """No number is infinite, no time negative or absurd, no share above one."""
    if isinstance(data, dict):
        for name, value in data.items():
            check_numbers(value, name if key not in ("counters", "counts") else key)  # those have names of the file's own
    elif isinstance(data, list):
        for value in data:
            check_numbers(value, key)
    elif isinstance(data, int | float):
        assert math.isfinite(data), key
        assert data >= 0 or not key.endswith(MEASURES), f"{key} is {data}"
        assert data <= 1 or not key.endswith(("share", "coverage")), f"{key} is {data}"
        assert data < ABSURD_S or key not in ONE_RUN, f"{key} is {data}"


def check_books(session: SessionData, report: Diagnosis, data: dict[str, Any]) -> None:
    assert report.loop_ns <= report.wall_ns
    lifetimes = [track.lifetime_ns for shard in session.shards for track in shard.tracks]
    for track, lifetime in zip(data["tracks"], lifetimes, strict=True):
        parts = [track[f"{part}_ns"] for part in ("exclusive", "waiting", "unattributed", "profiler")]
        assert min(parts) >= 0, track
        assert sum(parts) == track["lifetime_ns"] == lifetime, track
    for operation in report.operations:
        assert 0 <= operation.union_ns <= operation.union_high_ns <= operation.busy_ns, operation.name
        if operation.calls:
            percentiles = [operation.percentile_ns(q) for q in (0.5, 0.95, 0.99)]
            assert [operation.min_ns, *percentiles, operation.max_ns] == sorted(
                [operation.min_ns, *percentiles, operation.max_ns]
            ), operation.name
        assert math.isfinite(operation.sumsq), operation.name
        assert operation.sumsq >= 0, operation.name
    tree = report.ledger.tree
    assert all(branch.parent < i for i, branch in enumerate(tree)), "a branch before its parent"
    assert sum(branch.self_ns for branch in tree) <= sum(lifetimes)
    for shard in session.shards:
        assert 0 <= shard.start_ns <= shard.end_ns
        assert all(shard.start_ns <= span.start_ns <= shard.end_ns for span in shard.open_spans)
        for row, after in pairwise(shard.iterations):
            assert row.start_ns <= row.end_ns <= after.start_ns
    events = session.events
    assert not len(events) or (int(events.start_ns.min()) > 0 and int(events.dur_ns.min()) >= 0)
