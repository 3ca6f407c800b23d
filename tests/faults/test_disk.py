"""A4: disk trouble never hurts training. The Nth I/O call fails, for every N: same output, same exit code, one warning."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.errors import UnreadableError
from hotloop.store.reader import read_session

TRAINING = """
import sys
from hotloop import *
start(name="run", out="failing")
total = 0
for i in range(300):
    with profile("rollout"):
        for k in range(3):
            with profile(f"env_step_{i % 150}"): total += i * k
    count("env_steps", 3)
    step()
get_profiler().reset()
with profile("after reset"): total += 1
get_profiler().save("report.json")
stop()
print("trained", total)
sys.exit(3)
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler makes the library that fails"
    out = tmp_path_factory.mktemp("shim") / "fail.so"
    source = Path(__file__).with_name("fail_nth_call.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(source), "-ldl"], check=True)
    return out


def train(folder: Path, shim: Path, recorder: str, nth: int, error: int) -> tuple[subprocess.CompletedProcess[str], int]:
    folder.mkdir()
    (folder / "train.py").write_text(TRAINING)
    log = folder / "calls"
    env = os.environ | {
        "HOTLOOP_RECORDER": recorder, "LD_PRELOAD": str(shim), "FAIL_UNDER": "failing", "FAIL_NTH": str(nth),
        "FAIL_ERRNO": str(error), "FAIL_LOG": str(log), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    done = subprocess.run([sys.executable, "train.py"], cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    return done, int(log.read_text())


@pytest.mark.parametrize("recorder", ["native", "python"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=lambda e: errno.errorcode[e])
def test_whichever_call_fails_training_goes_on(tmp_path, shim, recorder, error):
    bare, calls = train(tmp_path / "whole", shim, recorder, 0, error)
    assert (bare.returncode, bare.stdout, bare.stderr) == (3, bare.stdout, "")
    assert calls > 15, "the library that fails calls is not in use"
    for nth in range(1, calls + 1):
        folder = tmp_path / f"call-{nth}"
        done, _ = train(folder, shim, recorder, nth, error)
        assert done.returncode == 3, (nth, done.stderr)
        assert done.stdout == bare.stdout, nth
        assert done.stderr.count("HotloopWarning") <= 1, (nth, done.stderr)
        assert "Traceback" not in done.stderr, (nth, done.stderr)
        for session in (folder / "failing").glob("run-*"):
            try:
                read_session(session)  # whatever is there can be read, or is refused in one sentence
            except UnreadableError as refused:
                assert "\n" not in str(refused)
        shutil.rmtree(folder)


@pytest.mark.parametrize("recorder", ["native", "python"])
def test_a_really_full_disk_never_kills_the_process(tmp_path, recorder):
    """Room for 1 MB: blocks are reserved before they are mapped, so there is no SIGBUS. Where we may not mount a file system
    of that size, no file may be larger."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = not subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], capture_output=True).returncode
    limit = None if mounted else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        script = tmp_path / "train.py"
        script.write_text(
            "from hotloop import *\n"
            f"start(out={str(disk)!r})\n"
            "for i in range(20000):\n"
            "    with profile(f'label {i % 2000}'): pass\n"
            "assert get_profiler().summary()['quality']['losses']['disk'] > 0\n"
            "print(sum(o['call_count'] for o in get_profiler().summary()['operations'].values()))\n"
            "stop()\n"
        )
        env = os.environ | {"HOTLOOP_RECORDER": recorder}
        done = subprocess.run(
            [sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=900, preexec_fn=limit
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "20000\n"
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_folder_is_one_warning(run):
    done = run(
        """
        from hotloop import *
        path = start(out="/proc/nowhere")
        with profile("x"): pass
        assert get_profiler().summary()["operations"]["x"]["call_count"] == 1
        get_profiler().print_summary()
        stop()
    """,
        check=False,
        env={"PYTHONWARNINGS": "default"},
    )
    assert done.returncode == 0
    assert done.stderr.count("HotloopWarning") == 1
    assert "cannot write to /proc/nowhere" in done.stderr


def test_descriptors_closed_by_the_program_are_no_danger(run_native):
    done = run_native(
        """
        import os
        from hotloop import *
        start()
        with profile("x"): pass
        os.closerange(3, 256)
        files = [open(f"mine-{i}", "w") for i in range(20)]
        for i in range(3000):
            with profile(f"label {i}", track_memory=i % 100 == 0): pass
        for f in files: f.write("mine"); f.close()
        stop()
        assert all(open(f"mine-{i}").read() == "mine" for i in range(20)) or True
    """,
        env={"PYTHONWARNINGS": "ignore"},
    )
    assert all((done.folder / f"mine-{i}").read_text() == "mine" for i in range(20))
    assert done.report.quality.recorded == 3001
