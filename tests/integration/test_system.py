"""The sidecar that samples CPU, memory and GPU from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.present.trace import export
from hotloop.store.reader import read_session
from hotloop.store.system import read_samples, summarise


def sidecars_of(session: str) -> str:
    return subprocess.run(["pgrep", "-f", f"hotloop.run.system .*{session}"], capture_output=True, text=True).stdout


def test_a_busy_process_is_seen_busy_and_the_sidecar_leaves_with_it(run):
    done = run("""
        import time
        from hotloop import *
        start(name="x", system=True)
        held = bytearray(80 << 20)
        end = time.process_time() + 1.5
        while time.process_time() < end: pass
        stop()
        get_profiler().print_episodes()
    """)
    assert "Average CPU Usage: " in done.stdout
    session = done.session
    resources = diagnose(session).resources
    assert resources["cpu_peak"] > 5, "a spinning process, on a machine with other work"
    assert resources["rss_peak"] > 80
    assert session.system[0]["cores"] >= 1
    assert sidecars_of(session.path.name) == ""
    events = json.loads("".join(export(session, "chrome").pieces))["traceEvents"]
    assert {e["name"] for e in events if e["ph"] == "C"} >= {"CPU of the processes", "memory of the processes"}


def test_a_killed_process_keeps_its_samples_and_leaves_no_sidecar(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import time, hotloop\nhotloop.start(system=True)\nwith hotloop.profile('x'): time.sleep(60)\n")
    process = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/*/system.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (path,) = (tmp_path / "runs").iterdir()
    while sidecars_of(path.name):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    session = read_session(path)
    assert session.processes[0].state == "died"
    assert diagnose(session).resources["rss_peak"] > 1


def test_a_recording_without_it_starts_no_process(run):
    done = run("""
        from hotloop import *
        start(); stop()
        import os
        try: os.waitpid(-1, os.WNOHANG)
        except ChildProcessError: print("no child")
    """)
    assert done.stdout == "no child\n"


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[1]", b'{"unix_s": NaN, "seconds": 1}', b'{"unix_s": 1e999, "seconds": 1}', b'{"unix_s": -1, "seconds": 1}',
     b'{"unix_s": 5, "seconds": 0}', b'{"unix_s": "5", "seconds": 1}', b"\xff\xfe", b"[" * 100_000],
    ids=range(10),
)  # fmt: skip
def test_lines_that_are_no_samples_are_left_out(tmp_path, line):
    good = json.dumps({"unix_s": 5, "seconds": 1, "cpu_percent": 50, "rss_mb": 10}).encode()
    (tmp_path / "system.jsonl").write_bytes(good + b"\n" + line + b"\n" + good[:-5])
    samples = read_samples(tmp_path)
    assert len(samples) == 1
    assert summarise(samples) == {"cpu_mean": 50, "cpu_peak": 50, "rss_mean": 10, "rss_peak": 10, "samples": 1, "sampled_s": 1}


def test_means_are_weighted_by_time():
    rows = [{"unix_s": 1.0, "seconds": 1.0, "cpu_percent": 100.0}, {"unix_s": 4.0, "seconds": 3.0, "cpu_percent": 20.0}]
    assert summarise(rows)["cpu_mean"] == 40
