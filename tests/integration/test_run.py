"""`hotloop run`: the script runs as it would alone, and there is a report whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.printing.text import shorten
from hotloop.run.progress import Progress, ProgressReader, StatusLine, status_text
from hotloop.run.supervisor import describe_exit
from hotloop.store.reader import read_session

SPANS = """
import os, signal, sys, time
from hotloop import profile, step, count, start, stop
start(name="ignored")
for _ in range(20):
    with profile("work"): sum(range(2000))
    count("env_steps", 4); step()
print("ready", flush=True)
"""


def hotloop_run(
    folder: Path, code: str, *arguments: str, options: tuple[str, ...] = (), **more
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(code)
    command = [sys.executable, "-m", "hotloop", "run", "--out", "session", *options, "train.py", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, **more)


def test_arguments_streams_and_exit_code_are_the_scripts(tmp_path):
    code = SPANS + "print(sys.argv, sys.stdin.read(), __name__, sys.path[0])\nprint('oops', file=sys.stderr)\nsys.exit(5)\n"
    done = hotloop_run(tmp_path, code, "--lr", "0.1", "--out", "mine", "-m", "x", input="hello")
    assert done.returncode == 5
    assert done.stdout.splitlines()[1] == f"['train.py', '--lr', '0.1', '--out', 'mine', '-m', 'x'] hello __main__ {tmp_path}"
    assert done.stderr.startswith("oops\n")
    assert "ended with exit code 5" in done.stderr
    assert "WHERE THE TIME WENT" in done.stderr
    session = tmp_path / "session"
    files = {path.name for path in session.iterdir()}
    assert files >= {"session.json", "shards", "report.txt", "report.html", "profiling_report.json", "findings.json"}
    findings = json.loads((session / "findings.json").read_text())["findings"]
    assert {finding["severity"] for finding in findings} <= {"note"}  # a busy machine may have it say where start-up was slow
    assert json.loads((session / "profiling_report.json").read_text())["summary"]["operations"]["work"]["call_count"] == 20
    meta = json.loads((session / "session.json").read_text())
    assert meta["exit"] == {"code": 5, "how": "ended with exit code 5"}
    report = diagnose(read_session(session))
    assert report.iterations_closed == 20
    assert report.processes[0].state == "ended"


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "killed by SIGSEGV"),
        ("os._exit(3)", 3, "ended with exit code 3"),
        ("raise ValueError('mine')", 1, "ended with exit code 1"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", 130, "killed by SIGINT"),
        ("pass", 0, "ended by itself"),
    ],
)
def test_however_it_ends_there_is_a_report_of_all_finished_spans(tmp_path, end, code, how):
    done = hotloop_run(tmp_path, SPANS + end + "\n", options=("--quiet",))
    assert done.returncode == code
    assert how in done.stderr
    assert "WHERE THE TIME WENT" not in done.stderr
    report = diagnose(read_session(tmp_path / "session"))
    assert next(o for o in report.operations if o.name == "work").calls == 20
    assert "work" in (tmp_path / "session" / "report.txt").read_text()


def start_run(folder: Path, code: str, *options: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", "session", *options, "train.py"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_termination_is_passed_on_to_the_script(tmp_path):
    ending = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\nprint('ready', flush=True)\ntime.sleep(60)\n"
    process = start_run(tmp_path, SPANS.replace("print(", "0 and print(") + ending)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 9
    process.communicate()


def test_a_killed_supervisor_leaves_the_script_and_its_recording(tmp_path):
    process = start_run(tmp_path, SPANS + "time.sleep(1)\nPath = __import__('pathlib').Path\nPath('finished').touch()\n")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60
    while not (tmp_path / "finished").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.communicate()
    report = diagnose(read_session(tmp_path / "session"))
    assert next(o for o in report.operations if o.name == "work").calls == 20


def test_the_whole_tree_killed_leaves_a_recording(tmp_path):
    process = start_run(tmp_path, SPANS + "time.sleep(60)\n")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.communicate()
    deadline = time.monotonic() + 60
    while (session := read_session(tmp_path / "session")).processes[0].state != "died":  # a kill takes a moment to arrive
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert next(o for o in diagnose(session).operations if o.name == "work").calls == 20


def test_a_time_limit_ends_the_script_gently(tmp_path):
    done = hotloop_run(tmp_path, SPANS + "time.sleep(60)\n", options=("--duration", "2", "--quiet"))
    assert done.returncode == 130
    assert "hotloop: the script was killed by SIGINT after 2 s, as asked for" in done.stderr


def test_an_iteration_limit_ends_the_script(tmp_path):
    code = SPANS + "while True:\n    time.sleep(0.01); step()\n"
    done = hotloop_run(tmp_path, code, options=("--max-iterations", "30", "--quiet"))
    assert done.returncode == 130
    assert "iterations, as asked for" in done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_worker_processes_join_without_importing_anything(tmp_path, method):
    code = f"""
import multiprocessing, sys, time
def work(i):
    assert "hotloop" in sys.modules
    from hotloop import profile
    for _ in range(10):
        with profile("env_step"): time.sleep(0.001)
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    workers = [context.Process(target=work, args=(i,), name=f"env-{{i}}") for i in range(2)]
    for w in workers: w.start()
    for w in workers: w.join()
    sys.exit(max(w.exitcode for w in workers))
"""
    done = hotloop_run(tmp_path, code, options=("--quiet",))
    assert done.returncode == 0, done.stderr
    report = diagnose(read_session(tmp_path / "session"))
    assert next(o for o in report.operations if o.name == "env_step").calls == 20
    assert {p.name for p in report.processes} >= {"env-0", "env-1"}


def test_modules_and_the_users_own_sitecustomize_work(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text("import sys\nprint(sys.argv[1:], __package__, sys.modules['sitecustomize'].MINE)\n")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("MINE = 'mine'\n")
    done = subprocess.run(
        [sys.executable, "-m", "hotloop", "run", "--quiet", "-m", "pack.train", "--x", "1"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(site)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "['--x', '1'] pack mine\n", done.stderr
    (session,) = (tmp_path / "runs").iterdir()
    assert session.name.startswith("pack.train-")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name a script"),
        (["missing.py"], "neither a file here nor a command"),
        (["ls"], "is not a Python program"),
        (["--out", "full", "train.py"], "is not empty"),
        (["--duration", "0", "train.py"], "--duration"),
    ],
)
def test_wrong_calls_are_one_sentence_and_exit_code_2(tmp_path, arguments, says):
    (tmp_path / "train.py").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    command = [sys.executable, "-m", "hotloop", "run", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert says in done.stderr


def test_secrets_on_the_command_line_are_not_kept(tmp_path):
    hotloop_run(tmp_path, SPANS, "--api-key", "sesame", options=("--quiet",))
    assert "sesame" not in (tmp_path / "session" / "session.json").read_text()


def test_exit_codes_are_those_of_a_shell():
    assert describe_exit(0) == (0, "ended by itself")
    assert describe_exit(-15) == (143, "killed by SIGTERM")
    assert describe_exit(-64)[0] == 192


def test_the_status_line_says_where_it_is(tmp_path):
    assert status_text(5, None) == "HotLoop 0:05 | nothing recorded yet"
    text = status_text(3661, Progress(3, None, (("a\x1b[31m", 0.5),)))
    assert text == "HotLoop 61:01 | iteration 3 | a\\x1b[31m 50 %"
    assert shorten("abcdef", 4) == "abc…"
    assert ProgressReader(tmp_path, 1).read() is None
    line = StatusLine(enabled=True)  # not a terminal under pytest
    line.show(1, None)
    line.close()
    assert not line.enabled
