"""One session, every view: what several of them say must be the same.

What lives here: `check_one_answer(session)`, for made-up sessions and for recorded ones. Each view is drawn as a user gets
it, and what it says is read back from there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

from matplotlib.figure import Figure

from hotloop.analyse.bottlenecks import find_bottlenecks
from hotloop.analyse.diagnosis import Diagnosis, diagnose
from hotloop.analyse.runs import ITERATIONS, choose_unit, find_warm_ups, reduce_run
from hotloop.errors import UsageError
from hotloop.model.session import SessionData
from hotloop.model.sheet import KINDS
from hotloop.present.analysis import analysis_text
from hotloop.present.detailed import detailed_data, session_report
from hotloop.present.html.data import Limits, page_data
from hotloop.present.json import report_data
from hotloop.present.listing import list_row
from hotloop.present.run_charts import chart_lanes
from hotloop.present.terminal import report_text
from hotloop.present.units import count_text, duration_text, rate_text, share_text
from hotloop.printing.summary import Summary
from hotloop.run.progress import status_text, take_progress
from hotloop.store.foreign import parse_report

WORDS = ("work", "waiting", "unattributed", "profiler")


def check_one_answer(session: SessionData) -> None:
    """Every quantity that more than one view shows is the same in all of them."""
    report = diagnose(session)
    said = report_data(report)
    main = said["tracks"][0] if said["tracks"] else None
    if main is None:
        return
    _check_json(said, main)
    for width in (80, 120):
        _check_terminal(report_text(report, width), said, main)
    _check_html(page_data(report, Limits()), said, main)
    _check_analysis(report, said, main)
    _check_charts(report, said)
    _check_small_views(session, report, said)


def _check_json(said: dict[str, Any], main: dict[str, Any]) -> None:
    """The JSON against itself: tree, lanes, phases, totals."""
    parts = [main[f"{word}_ns"] for word in ("exclusive", "waiting", "unattributed", "profiler")]
    assert sum(parts) == main["lifetime_ns"] == said["balance"][0]["ns"]
    held: Counter[str] = Counter()
    parents = {row["parent"] for row in said["balance"]}
    for i, row in enumerate(said["balance"]):
        if i not in parents:
            held["waiting" if row["waited"] else row["kind"]] += row["ns"]
    assert [held[kind] for kind in KINDS] == parts
    if not said["startup_s"] or not said["loop_s"]:
        return
    loop_s = said["loop_s"]
    direct, inferred, waiting = (
        math.fsum(phase[f"{what}_s"] for phase in said["phases"]) for what in ("direct", "inferred", "waiting")
    )
    assert _near(direct / loop_s, said["direct_coverage"]) and _near(inferred / loop_s, said["inferred_share"])
    assert _near(direct + inferred + main["unattributed_s"] + main["profiler_s"], loop_s)
    assert _near(waiting, main["waiting_s"]) and _near(inferred, main["inferred_s"])
    assert _near(said["coverage"], 1 - main["unattributed_s"] / loop_s)
    assert _near(said["startup_s"] + loop_s, said["wall_s"])
    for phase in said["phases"]:
        assert _near(math.fsum(part["total_s"] for part in phase["parts"]), phase["direct_s"] + phase["inferred_s"])
        assert _near(math.fsum(part["waiting_s"] for part in phase["parts"]), phase["waiting_s"])


def _check_terminal(text: str, said: dict[str, Any], main: dict[str, Any]) -> None:
    flat = " ".join(text.split())
    head = flat.partition("WHERE THE TIME WENT")[0]
    for fact in (f"wall {_time(said['wall_s'])}", f"loop {_time(said['loop_s'])}", f"coverage {share_text(said['coverage'])}"):
        assert fact in head, fact
    if said["sps"] is not None:
        assert f"{rate_text(said['sps'])} env steps/s" in head
        assert _near(said["sps"] * said["loop_s"], said["counters"]["env_steps"])
    if said["iterations"]["closed"]:
        assert f"{said['iterations']['closed']:,} iterations" in head
    if said["startup_s"]:
        for name in ("env_steps", "updates", "episodes", "resets"):
            if name in said["counters"]:
                assert f"{count_text(said['counters'][name])} {name.replace('_', ' ')}" in head
        if said["loop_s"]:
            assert f"{share_text(said['direct_coverage'])} of the loop was measured directly" in flat
            assert f"{share_text(said['inferred_share'])} is inferred" in flat
    if not main["lifetime_ns"]:
        return
    (sums,) = re.findall(r"work ([\d.]+) \+ . waiting ([\d.]+) \+ . unattributed ([\d.]+) \+ . profiler ([\d.]+) = 100", flat)
    lines = text.splitlines()
    lane = re.findall(r"([\d.]+) %", lines[next(i for i, line in enumerate(lines) if line.startswith("THREADS")) + 1])
    assert [float(x) for x in sums] == [float(x) for x in lane], "the tree's sum and the first lane"
    for shown, word in zip(sums, ("exclusive", "waiting", "unattributed", "profiler"), strict=True):
        assert abs(float(shown) - 100 * main[f"{word}_ns"] / main["lifetime_ns"]) <= 0.1001
    assert "CRITICAL" not in text and "score" not in text


def _check_html(page: dict[str, Any], said: dict[str, Any], main: dict[str, Any]) -> None:
    session = page["session"]
    assert (session["wall_ns"], session["loop_ns"]) == (_ns(said["wall_s"]), _ns(said["loop_s"]))
    assert session["coverage"] == said["coverage"] and session["iterations"] == said["iterations"]["closed"]
    assert _near(session["sps"] or 0, said["sps"] or 0, 1e-5) and dict(session["counters"]) == said["counters"]
    parts = [main[f"{word}_ns"] for word in ("exclusive", "waiting", "unattributed", "profiler")]
    assert [total["ns"] for total in page["totals"]] == parts == page["lanes"]["rows"][0][3]
    assert page["totals"][0]["inferred_ns"] == _ns(main["inferred_s"])
    if page["phases"] is not None:
        assert page["phases"]["direct"] == round(said["direct_coverage"] * 1000)
        rows = {row["name"]: row["ns"] for row in page["phases"]["rows"]}
        assert sum(rows.values()) == page["phases"]["loop_ns"] == session["loop_ns"]
        assert rows.get("unattributed", 0) == main["unattributed_ns"] and rows.get("profiler", 0) == main["profiler_ns"]


def _check_analysis(report: Diagnosis, said: dict[str, Any], main: dict[str, Any]) -> None:
    analysis = find_bottlenecks(parse_report("x", session_report(report)), 0)
    data = detailed_data(analysis, {})["summary"]
    assert data["coverage"] == said["coverage"] and data["wall_time"] == said["wall_s"]
    beside = {name: row["total_time"] for name, row in data["beside"].items()}
    assert _near(beside["waiting"], main["waiting_s"]) and _near(beside["profiler"], main["profiler_s"])
    assert _near(beside.get("start-up", 0), said["startup_s"])
    whole = math.fsum([*beside.values(), *(row["total_time"] for row in data["categories"].values())])
    assert _near(whole, said["wall_s"]), "analyze adds up to the wall time"
    text = analysis_text(analysis)
    assert f"coverage {said['coverage']:.1%}" in text and f"wall {said['wall_s']:.3f} s" in text
    assert all(gain >= 2 for gain in map(float, re.findall(r"at most ([\d.]+)% to gain", text))) or "peak" in text


def _check_charts(report: Diagnosis, said: dict[str, Any]) -> None:
    axes = Figure().subplots()
    chart_lanes(axes, report)
    legend = axes.get_legend()
    if legend is None:
        return
    first = [container[0].get_width() for container in axes.containers]
    main = said["tracks"][0]
    order = [b for b in said["tracks"] if b["lifetime_ns"]]
    if order and order[0] is main:
        for width, word in zip(first, ("exclusive", "waiting", "unattributed", "profiler"), strict=True):
            assert _near(width, main[f"{word}_s"])


def _check_small_views(session: SessionData, report: Diagnosis, said: dict[str, Any]) -> None:
    row = list_row("x", report)
    assert [row[key] for key in ("wall_s", "loop_s", "sps", "coverage")] == [
        said[key] for key in ("wall_s", "loop_s", "sps", "coverage")
    ]
    assert row["iterations"] == said["iterations"]["closed"]
    summary = session_report(report)["summary"]
    assert [summary[key] for key in ("wall_time", "loop_time", "sps", "coverage", "direct_coverage", "iterations")] == [
        *(said[key] for key in ("wall_s", "loop_s", "sps", "coverage", "direct_coverage")), said["iterations"]["closed"],
    ]  # fmt: skip
    assert summary["counters"] == said["counters"]
    progress = take_progress(session.shards)
    if progress is not None and not progress.starting:
        assert (progress.iterations, progress.sps) == (said["iterations"]["closed"], said["sps"])
        if said["sps"] is not None:
            assert f"{said['sps']:,.0f} steps/s" in status_text(1, progress)
    if len(session.shards) == 1:
        alone = Summary(session.shards[0]).as_dict()
        assert [alone[key] for key in ("wall_time", "sps", "coverage", "iterations")] == [
            summary[key] for key in ("wall_time", "sps", "coverage", "iterations")
        ]
    _check_run(report, said)


def _check_run(report: Diagnosis, said: dict[str, Any]) -> None:
    """What `ab` and `compare` take of it: the same loop, the same work."""
    try:
        unit = choose_unit([report])
        warm_ups, _ = find_warm_ups([report])
        run = reduce_run(report, unit, warm_ups[0], 0)
    except UsageError:
        return
    assert run.total_ns == sum(run.components.values()) <= _ns(said["loop_s"])
    if said["startup_s"]:  # the loop without what we cost
        assert run.total_ns == _ns(said["loop_s"]) - said["tracks"][0]["profiler_ns"]
    assert run.work == (said["iterations"]["closed"] if unit == ITERATIONS else said["counters"][unit])


def _near(a: float, b: float, relative: float = 1e-9) -> bool:
    return math.isclose(a, b, rel_tol=relative, abs_tol=2e-9)


def _time(seconds: float) -> str:
    return duration_text(_ns(seconds))  # whole nanoseconds again: 3.945 µs is rounded as the report rounds it


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
