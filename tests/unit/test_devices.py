"""Device data: from the file to numbers, sentences and findings; deep windows folded under labels."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from hotloop.analyse.devices import BETWEEN, EARLIER, summarise_devices
from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.operators import fold_operators
from hotloop.errors import UnreadableError, UsageError
from hotloop.model import device as d
from hotloop.model.device import TraceRow
from hotloop.model.trace import parse_trace, trace_settings
from hotloop.present.json import report_data
from hotloop.present.terminal import report_text
from hotloop.store.devices import read_devices
from hotloop.store.operators import read_ops, read_trace, write_ops

from .loops import FILE, MS, make_session

STEP, BACK = 1, 7  # paths of the session made by hand


def label(path, host=0, sure=0, most=0, blocked=0, copy=0, waited=0):
    """What was measured of it in half of the run; a process writes it for the whole."""
    return d.DeviceLabel(1, path, 10, *(2 * ms * MS for ms in (host, sure, most, blocked, copy, waited)))


def process(**more):
    base = d.DeviceProcess(
        pid=1, name="H200", lifetime_ns=1000 * MS, measured_ns=500 * MS, covered_ns=1000 * MS, busy_ns=200 * MS, cost_ns=5 * MS,
        marks=100, dropped=0,
        unresolved=0, broken="", labels=(label(STEP, host=300, most=300), label(BACK, host=50, sure=100, most=150, waited=90)),
        pairs=(d.DevicePair((1, STEP), (1, BACK), 180 * MS), d.DevicePair((1, STEP), (0, -1), 20 * MS)),
    )  # fmt: skip
    return replace(base, **more)


def transfer(call="item", direction=d.TO_HOST, count=1000, size=4000, ns=300 * MS, **more):
    return replace(d.Transfer(FILE, 30, "learn", call, direction, count, size, 0, count, ns), **more)


def session_with(*processes):
    return replace(make_session(), devices=processes)


def test_windows_are_scaled_to_the_time_the_device_was_in_use():
    found = summarise_devices(session_with(process()))
    rows = {row.name: row for row in found.rows}
    assert rows["learn/backward"].least_ns == 200 * MS
    assert rows["collect/env_step"].host_ns == 600 * MS
    assert found.measured_share == 0.5
    assert found.busy_least == pytest.approx(0.2)
    assert [(b.inside, b.owner) for b in found.blocked] == [
        ("collect/env_step", "learn/backward"),
        ("collect/env_step", EARLIER),
    ]


def test_a_label_stands_for_the_calls_that_were_counted():
    """The windows saw 8 env steps for 10; far fewer mean that the device was in use for a part of the run."""
    few = replace(label(STEP, host=300, most=300, blocked=50), spans=8)
    found = summarise_devices(session_with(process(labels=(few, replace(label(BACK, sure=100, most=150), spans=4)))))
    rows = {row.name: row for row in found.rows}
    assert (rows["collect/env_step"].spans, rows["learn/backward"].spans) == (10, 4)
    assert rows["collect/env_step"].host_ns == 750 * MS
    assert rows["collect/env_step"].blocked_ns == 125 * MS
    assert rows["learn/backward"].least_ns == 200 * MS
    assert rows["learn/backward"].waited_ns == found.blocked[0].ns == 225 * MS, "blocked in the env step"


def test_only_spans_that_queue_nothing_count_as_certainly_idle():
    found = summarise_devices(session_with(process()))
    assert found.idle_least == pytest.approx(0.6)
    assert found.idle_most == pytest.approx(0.8)
    assert dict(found.idle_in) == {"collect/env_step": pytest.approx(0.6)}
    busy_env = process(labels=(label(STEP, host=300, sure=200, most=300),))  # an environment on the device
    assert summarise_devices(session_with(busy_env)).idle_least == 0


def test_paths_nobody_knows_are_between():
    odd = process(labels=(d.DeviceLabel(99, 5, 1, MS, 0, MS, 0, 0, 0), d.DeviceLabel(1, 4000, 1, MS, 0, MS, 0, 0, 0)))
    assert {row.name for row in summarise_devices(session_with(odd)).rows} == {BETWEEN}


def test_lines_of_several_processes_are_one():
    both = session_with(process(transfers=(transfer(),)), process(pid=2, transfers=(transfer(), transfer("cpu"))))
    found = summarise_devices(both).transfers
    assert [(t.call, t.count) for t in found] == [("item", 2000), ("cpu", 1000)]


def test_memory_that_rises_throughout_grows():
    points = tuple(d.MemoryPoint(i, 100 + 10 * i, 1000) for i in range(60))
    found = summarise_devices(session_with(process(memory=points, peak_allocated=900, peaks=((1, BACK, 700),))))
    assert found.memory.growth == 200
    assert found.memory.fragmentation == pytest.approx(1 - 690 / 1000)
    assert found.memory.peaks == (("learn/backward", 700),)
    flat = summarise_devices(session_with(process(memory=points[:1] * 60)))
    assert flat.memory.growth == 0


def test_without_a_device_nothing_is_said():
    session = make_session()
    report = diagnose(session)
    assert report.devices is None
    data = report_data(report)
    assert data["device"] is None
    assert data["operators"] is None
    assert "DEVICE" not in report_text(report)
    assert {"gpu-idle", "sync-in-loop", "blocking-transfer"}.isdisjoint(f.cause for f in report.findings)


def test_the_report_and_its_json_tell_the_device():
    session = session_with(process(transfers=(transfer(),), broken="RuntimeError: gone \x1b[31m"))
    report = diagnose(session)
    text = report_text(report)
    assert "DEVICE  H200" in text
    assert "idle 60–80 %" in text
    assert "train.py:30 learn" in text
    assert "is for work queued in learn/backward" in text
    assert "\x1b" not in text
    data = json.loads(json.dumps(report_data(report), allow_nan=False))["device"]
    assert data["idle_least"] == pytest.approx(0.6)
    assert data["transfers"][0]["call"] == "item"
    assert {row["name"] for row in data["spans"]} == {"collect/env_step", "learn/backward"}


# ---- causes ----


def causes_of(*processes):
    session = session_with(*processes)
    return {f.cause: f for f in diagnose(session).findings}


def test_many_small_reads_are_a_sync_in_the_loop_at_their_line():
    found = causes_of(process(transfers=(transfer(),)))["sync-in-loop"]
    assert (found.file, found.line, found.function) == ("train.py", 30, "learn")
    assert found.share == pytest.approx(0.3, rel=0.05)
    assert found.gain.mid > 1.1


def test_a_busy_device_leaves_little_to_gain_from_fewer_syncs():
    idle = causes_of(process(transfers=(transfer(),)))["sync-in-loop"]
    busy = causes_of(process(transfers=(transfer(),), busy_ns=900 * MS))["sync-in-loop"]
    assert busy.gain.mid < idle.gain.mid


def test_large_copies_are_a_blocking_transfer_and_no_sync():
    found = causes_of(process(transfers=(transfer("to", d.TO_DEVICE, 200, 200 << 20),)))
    assert "sync-in-loop" not in found
    assert found["blocking-transfer"].line == 30
    assert "200 MB" in found["blocking-transfer"].evidence[0]


def test_copies_that_do_not_block_are_fine():
    free = transfer("to", d.TO_DEVICE, 200, 200 << 20, blocking=0)
    assert "blocking-transfer" not in causes_of(process(transfers=(free,)))


def test_an_idle_gpu_is_found_with_what_the_host_did():
    found = causes_of(process())["gpu-idle"]
    assert found.span == "collect/env_step"
    assert "60 %" in found.title
    assert found.function == "Grid.step"
    busy = process(labels=(label(STEP, host=100, most=100),))
    assert "gpu-idle" not in causes_of(busy)


# ---- the file ----


def good_file():
    return {
        "pid": 7, "name": "H200", "lifetime_ns": 10, "measured_ns": 5, "covered_ns": 5, "busy_ns": 1, "cost_ns": 1,
        "marks": 3, "dropped": 0,
        "unresolved": 0, "broken": "",
        "labels": [{"key": [1, 2], "spans": 1, "host_ns": 1, "least_ns": 1, "most_ns": 1, "blocked_ns": 0, "copy_ns": 0,
                    "waited_ns": 0}],
        "pairs": [{"in": [1, 2], "for": [0, -1], "ns": 3}],
        "transfers": [{"file": "a.py", "line": 3, "function": "f", "call": "item", "direction": d.TO_HOST, "count": 1,
                       "bytes": 4, "pinned": 0, "blocking": 1, "ns": 9}],
        "memory": [[1, 2, 3]], "peaks": [[1, 2, 3]], "peak_allocated": 2, "peak_reserved": 3,
    }  # fmt: skip


def read(folder, content):
    (folder / "device").mkdir(exist_ok=True)
    (folder / "device" / "7.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return read_devices(folder, lambda path, limit: path.read_bytes()[:limit])


def test_a_file_reads_back(tmp_path):
    (found,) = read(tmp_path, good_file())
    assert found.labels[0].path == 2
    assert found.pairs[0].owner == (0, -1)
    assert found.transfers[0].line == 3
    assert found.memory == (d.MemoryPoint(1, 2, 3),)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", "null", "[" * 5000, {**good_file(), "pid": -1}, {**good_file(), "busy_ns": 1e400},
     {**good_file(), "labels": 3}, {**good_file(), "lifetime_ns": True}, {"pid": 7}],
    ids=range(10),
)  # fmt: skip
def test_files_of_anyone_else_are_left_out(tmp_path, content):
    assert read(tmp_path, content) == ()


def test_rows_that_cannot_be_are_left_out(tmp_path):
    file = good_file()
    file["labels"] += [{"key": [1]}, None, {**file["labels"][0], "host_ns": -3}, {**file["labels"][0], "key": [1, -9]}]
    file["transfers"] += [{**file["transfers"][0], "direction": "sideways"}, 3]
    (found,) = read(tmp_path, file)
    assert len(found.labels) == len(found.transfers) == 1


# ---- deep windows ----


def row(kind, name, start, dur, tid=1, correlation=0):
    return TraceRow(kind, name, tid, start, dur, correlation)


ROWS = sorted(
    [
        row("span", "collect/env_step", 0, 100), row("span", "learn/backward", 200, 300), row("span", "Grid.step", 10, 50),
        row("op", "aten::add", 20, 30), row("op", "aten::linear", 120, 60), row("op", "aten::mm", 130, 40),
        row("op", "MulBackward", 250, 100, tid=9), row("op", "aten::late", 600, 10),
        row("runtime", "cudaLaunchKernel", 260, 5, tid=9, correlation=4), row("kernel", "gemm", 900, 70, tid=0, correlation=4),
        row("copy", "Memcpy DtoH", 940, 60, tid=0, correlation=99),
    ],
    key=lambda r: (r.start_ns, -r.dur_ns),
)  # fmt: skip


def test_operators_fold_under_the_phase_that_called_them():
    found = fold_operators(ROWS, 2)
    times = {(x.kind, x.name, x.label): x.ns for x in found.rows}
    assert times["op", "aten::add", "collect/env_step"] == 30, "the innermost label that names a phase"
    assert times["op", "aten::mm", "learn/other"] == 40, "between two spans it is the phase of what follows"
    assert times["op", "aten::linear", "learn/other"] == 20, "without what it calls"
    assert times["op", "MulBackward", "learn/backward"] == 100, "autograd's thread works for ours"
    assert times["op", "aten::late", ""] == 10
    assert times["kernel", "gemm", "learn/backward"] == 70, "where it was launched, not where it ran"
    assert times["copy", "Memcpy DtoH", ""] == 60
    assert found.kernel_busy_ns == 100
    assert found.folded("kernel") == 1.0
    assert found.folded("op") == pytest.approx(190 / 200)


def test_folded_operators_read_back_and_others_files_do_not(tmp_path):
    ops = fold_operators(ROWS, 2)
    write_ops(tmp_path, ops)
    assert read_ops((tmp_path / "torch_ops.json").read_bytes()) == ops
    for data in (b"", b"[]", b'{"rows": 3}', b'{"window_ns": 1, "iterations": 1, "kernel_busy_ns": 1, "rows": [["x"]]}'):
        assert read_ops(data) is None


def test_a_trace_with_odd_events_is_read_as_far_as_it_goes(tmp_path):
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "tid": 5, "ts": 1.5, "dur": 2.25},
        {"ph": "X", "cat": "cpu_op", "name": "broken", "tid": 5, "ts": "x"},
        {"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": 9, "dur": 1, "args": {"correlation": 3}},
        {"ph": "M", "name": "process_name"},
        {"ph": "X", "cat": [], "name": "k", "tid": 7, "ts": 9, "dur": 1},
        3,
    ]
    path = tmp_path / "torch_trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    assert read_trace(Path(path)) == [row("op", "aten::add", 1500, 2250, 5), row("kernel", "k", 9000, 1000, 7, 3)]


def test_a_damaged_gzip_is_one_sentence(tmp_path):
    path = tmp_path / "torch_trace.json.gz"
    path.write_bytes(gzip.compress(b"")[:10] + b"\xff" * 40)  # a good head, and nothing that can be inflated
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_trace(path)


@pytest.mark.parametrize("text", ["wait", "wait=x", "active=0", "sideways=3", "active=1000", "wait=-1"])
def test_a_window_that_makes_no_sense_is_one_sentence(text):
    with pytest.raises(UsageError):
        parse_trace(text)


@pytest.mark.parametrize("said", [{"steps": 3}, {"wait_steps": "2"}, {"record_shapes": 1}, {"active_steps": True}])
def test_settings_of_the_api_are_checked_too(said):
    with pytest.raises(UsageError):
        trace_settings(said)
