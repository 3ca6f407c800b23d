from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hotloop import __version__
from hotloop.cli.main import main
from hotloop.store.reader import read_session


def test_the_module_and_the_command_are_the_same(tmp_path):
    for command in ([sys.executable, "-m", "hotloop"], ["hotloop"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"hotloop {__version__}\n"


def test_report_json_has_the_agreed_keys(run, capsys):
    done = run("""
        from hotloop import *
        start(name="run1")
        with profile("rollout"):
            for _ in range(3):
                with profile("env_step"): pass
        count("env_steps", 3); step()
        stop()
    """)
    (path,) = (done.folder / "runs").iterdir()
    assert main(["report", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) >= {
        "version", "session", "wall_s", "loop_s", "coverage", "operations", "tree", "tracks", "iterations", "quality",
    }  # fmt: skip
    names = {o["name"]: o for o in data["operations"]}
    assert set(names["env_step"]) >= {
        "name", "calls", "total_s", "self_s", "min_s", "max_s", "p50_s", "p95_s", "share", "busy_s", "union_s", "concurrency",
        "memory_peak_mb", "gpu_peak_mb",
    }  # fmt: skip
    assert names["env_step"]["calls"] == 3
    assert names["rollout"]["total_s"] >= names["env_step"]["total_s"]
    (root,) = data["tree"]
    (rollout,) = [c for c in root["children"] if c["name"] == "rollout"]
    assert rollout["children"][0]["name"] == "env_step"
    (track,) = data["tracks"]
    assert track["exclusive_ns"] + track["waiting_ns"] + track["unattributed_ns"] + track["profiler_ns"] == track["lifetime_ns"]
    assert data["quality"]["attempted"] == data["quality"]["recorded"] == 4
    assert data["iterations"]["closed"] == 1


def test_a_clean_run_with_full_event_windows_and_ring_has_no_problems(run):
    done = run("""
        from hotloop import *
        start(name="run1")
        for _ in range(30):
            for _ in range(3_000):
                with profile("env_step"): pass
            step()
        stop()
    """)
    (path,) = (done.folder / "runs").iterdir()
    session = read_session(path)
    (shard,) = session.shards
    assert session.problems == ()
    assert len(session.events.start_ns) >= shard.logged_events + min(shard.ring_events, 8_000)


def test_report_as_text(run, capsys):
    done = run("""
        from hotloop import *
        start(name="run1")
        with profile("env_step"): pass
        stop()
    """)
    (path,) = (done.folder / "runs").iterdir()
    assert main(["report", str(path)]) == 0
    text = capsys.readouterr().out
    assert "HotLoop  run1" in text
    assert "env_step" in text
    assert "MainThread" in text
    assert "losses none" in text


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p / "nothing", "does not exist"),
        (lambda p: (p / "file").write_text("x") and p / "file", "is not a session directory"),
        (lambda p: (p / "empty").mkdir() or p / "empty", "holds no recording"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_3(tmp_path, capsys, make, says):
    assert main(["report", str(make(tmp_path))]) == 3
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_wrong_usage_is_exit_code_2(capsys):
    assert main(["report", "--nonsense"]) == 2
    assert main(["nonsense"]) == 2
    assert "No such command" in capsys.readouterr().err


def test_without_a_session_the_latest_is_shown_or_missed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 3
    assert "there is no session in ./runs" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_failure(run):
    done = run("""
        from hotloop import *
        start()
        for i in range(3000):
            with profile(f"label {i}"): pass
        stop()
    """)
    (path,) = (done.folder / "runs").iterdir()
    shown = subprocess.Popen([sys.executable, "-m", "hotloop", "report", str(path), "--json"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)  # fmt: skip
    shown.stdout.read(10)
    shown.stdout.close()
    assert shown.stderr.read() == b""
    shown.stderr.close()
    assert shown.wait() == 0


def test_doctor_in_json_keeps_what_the_script_prints_out_of_it(tmp_path):
    (tmp_path / "train.py").write_text("import os\nprint('hello')\nos.system('echo child')\n")
    words = [sys.executable, "-m", "hotloop", "doctor", "--json", "train.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "script" in {check["what"] for check in json.loads(done.stdout)}
    assert "hello" in done.stderr
    assert "child" in done.stderr


def test_doctor_says_which_recorder_serves(run):
    done = run("import sys; from hotloop.cli.main import main; sys.exit(main(['doctor', '--json']))")
    checks = {c["what"]: c for c in json.loads(done.stdout)}
    native = run.recorder == "native"
    assert ("native" in checks["recorder"]["detail"]) is native or "HOTLOOP_RECORDER" in checks["recorder"]["detail"]
    assert checks["recorder"]["state"] == ("ok" if native else "note")
    text = run("import sys; from hotloop.cli.main import main; sys.exit(main(['doctor']))").stdout
    assert "recorder" in text
    assert "memory peaks" in text
