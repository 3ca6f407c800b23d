"""What the GPU benchmarks share: running a script under `hotloop run`, reading its device numbers, sleeping kernels.

Each script needs a CUDA device and says so, with exit code 3, where there is none.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import clean_env

NO_DEVICE = 3


def need_cuda() -> None:
    try:
        import torch

        found = torch.cuda.is_available()
    except ImportError:
        found = False
    if not found:
        print("needs a CUDA device and torch with CUDA; nothing was measured")
        raise SystemExit(NO_DEVICE)


def run_bare(code: str, *arguments: str) -> str:
    """The script's standard output, without us."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(code)
        done = subprocess.run(
            [sys.executable, str(script), *arguments], capture_output=True, text=True, env=clean_env(), cwd=folder
        )
    if done.returncode:
        raise SystemExit(f"the script failed:\n{done.stderr[-3000:]}")
    return done.stdout


def run_hooked(code: str, *arguments: str, options: tuple[str, ...] = (), keep: Path | None = None) -> tuple[str, dict]:
    """The script's standard output and the JSON report, under `hotloop run`."""
    with tempfile.TemporaryDirectory() as folder:
        script, session = Path(folder, "script.py"), keep or Path(folder, "session")
        script.write_text(code)
        command = [sys.executable, "-m", "hotloop", "run", "--quiet", "--out", str(session), *options, str(script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=clean_env(), cwd=folder)
        if done.returncode:
            raise SystemExit(f"the script failed:\n{done.stderr[-3000:]}")
        command = [sys.executable, "-m", "hotloop", "report", str(session), "--json"]
        report = subprocess.run(command, capture_output=True, text=True, env=clean_env(), cwd=folder, check=True)
    return done.stdout, json.loads(report.stdout)


def run_session(code: str, *arguments: str) -> tuple[str, dict]:
    """The standard output of a script that records a session of its own below its first argument, and the JSON report."""
    with tempfile.TemporaryDirectory() as folder:
        said = run_bare(code, folder, *arguments)
        (session,) = (path.parent for path in Path(folder).glob("*/session.json"))
        command = [sys.executable, "-m", "hotloop", "report", str(session), "--json"]
        report = subprocess.run(command, capture_output=True, text=True, env=clean_env(), check=True)
    return said, json.loads(report.stdout)


def show(what: str, value: float, bar: float, above: bool, unit: str = "") -> bool:
    ok = value >= bar if above else value <= bar
    print(f"  {'ok  ' if ok else 'MISS'} {what:<64} {value:>10.4g} {unit} (bar {'≥' if above else '≤'} {bar:g})")
    return ok
