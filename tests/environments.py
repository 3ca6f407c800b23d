"""Environments for tests that cannot run in the one at hand: another Python, or libraries that exclude each other.

What lives here: finding interpreters, making environments, putting this checkout into them. Used by `tests/matrix.py` and
`tests/sets/run.py`. Invariant: an environment is used again only while what was asked of it is the same; HotLoop in it is
always this checkout; torch is the version of constraints.txt, or pip would fetch another with gigabytes of CUDA.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotloop-tests"
READY = "ready"
_VERSION = "import sys; print('%d.%d' % sys.version_info[:2], sys.implementation.name)"


def this_python() -> Path:
    """The interpreter that runs this, not the environment around it, which may be gone the next time."""
    return Path(getattr(sys, "_base_executable", "") or sys.executable)


def find_python(version: str) -> Path | None:
    """An interpreter of CPython `version` ("3.12"), or None: this one, one of pyenv's, or one on the PATH."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [str(this_python()), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python3")), reverse=True)]
    found += filter(None, [shutil.which(f"python{version}")])
    for candidate in found:
        try:  # one of pyenv's on the PATH may be there only to say that it is not chosen
            said = subprocess.run([candidate, "-c", _VERSION], capture_output=True, text=True, timeout=60)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.split() == [version, "cpython"]:
            return Path(candidate)
    return None


def run(*command: str | Path, env: dict[str, str] | None = None) -> int:
    """Run in the checkout, with what is installed and not what PYTHONPATH names."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return subprocess.run([str(word) for word in command], cwd=ROOT, env=kept | (env or {})).returncode


def install(python: Path, *what: str) -> bool:
    return run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", CONSTRAINTS, *what) == 0


def make(name: str, python: Path, requirements: Sequence[str], extra: str) -> Path | None:
    """The interpreter of an environment with these requirements, torch first, then HotLoop with an extra. None: pip failed."""
    asked = "\n".join([str(python), CONSTRAINTS.read_text(), *requirements])
    folder = CACHE / f"{name}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    inside = folder / "bin" / "python"
    if not (folder / READY).exists():
        for old in CACHE.glob(f"{name}-????????????"):  # ours, for other requirements, or half made
            shutil.rmtree(old)
        if run(python, "-m", "venv", folder):
            return None
        if requirements and not (install(inside, "torch") and install(inside, *requirements)):
            return None
        (folder / READY).touch()
    return inside if install(inside, f"{ROOT}[{extra}]") else None
