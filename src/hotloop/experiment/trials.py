"""One run of an experiment: a fresh process under `hotloop run`, its session, its output, and a note of how it went.

What lives here: starting it, the note (`trial.json`, written last: without it the run did not finish), and what the script said
it had achieved. Invariant: a session directory with a note is complete and is never written again.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import UnreadableError
from ..store.reader import read_json
from ..store.writer import write_json
from .command import Command

NOTE, OUTPUT = "trial.json", "output.txt"
OK, FAILED = "ok", "failed"
_TAIL_BYTES = 1 << 20
_STOP_S = 15.0
# "return=1.5", "mean_reward: -3", "return  -1.585", "| ep_rew_mean | 20.5 |"; the last one in the output counts.
_RETURN = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:\w*(?:return|reward)|ep_rew_mean|score)\s*[=:|]?\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.,])",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Note:
    """What is known of a finished run."""

    experiment: str
    arm: str
    round: int
    number: int
    seed: int
    status: str
    message: str  # why it failed
    fingerprint: str  # of what was run
    returned: float | None
    seconds: float


def run_command(command: Command, folder: Path, environment: dict[str, str], session: Path) -> tuple[str, float]:
    """Run it in the folder, under `hotloop run`; answers what went wrong ("" if nothing) and how long it took."""
    output = session.with_name(session.name + ".out")
    output.parent.mkdir(parents=True, exist_ok=True)
    options = [
        "--quiet",
        "--no-probe",
        "--lines",
        "few",
        "--out",
        str(session.resolve()),
    ]  # what is compared is disturbed least
    words = [sys.executable, "-m", "hotloop", "run", *options, *command.arguments]
    begin = time.monotonic()
    code = _call(words, folder, environment, output)
    took = time.monotonic() - begin
    message = "" if code == 0 else _describe_failure(code, output)
    if session.is_dir():
        output.replace(session / OUTPUT)
    return message, took


def _call(words: list[str], folder: Path, changes: dict[str, str], output: Path) -> int:
    """The exit code. Ctrl-C ends the child first, then us."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HOTLOOP_SESSION", "HOTLOOP_RUN")} | changes
    with open(output, "wb") as file:
        child = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        try:
            return child.wait()
        except BaseException:
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            raise


def _describe_failure(code: int, output: Path) -> str:
    """One sentence: the exit code and the last thing the script said, HotLoop's own lines left out."""
    lines = [line.strip() for line in read_tail(output).splitlines()]
    said = [line for line in lines if line and not line.startswith(("hotloop: the script", "^"))]
    last = said[-1] if said else ""
    if last.startswith("hotloop: "):
        return last.removeprefix("hotloop: ")
    return f"ended with exit code {code}" + (f": {last[:200]}" if last else " and said nothing")


def read_tail(path: Path) -> str:
    """The end of a text file nobody vouches for."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with open(fd, "rb") as file:
            size = os.fstat(fd).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def find_return(text: str) -> float | None:
    """The last return a script printed.

    >>> find_return("step 1 return=0.5\\nstep 2 return=1.5"), find_return("nothing")
    (1.5, None)
    """
    found = _RETURN.findall(text)
    value = float(found[-1]) if found else math.nan
    return value if math.isfinite(value) else None


def write_note(session: Path, note: Note) -> None:
    session.mkdir(parents=True, exist_ok=True)
    write_json(str(session / NOTE), asdict(note))


def read_note(session: Path) -> Note | None:
    """The note of a finished run; None where there is none, or none of ours."""
    try:
        data: Any = read_json(session / NOTE, 1 << 16)
    except UnreadableError:
        return None
    kinds: dict[str, tuple[type, ...]] = {
        "experiment": (str,), "arm": (str,), "round": (int,), "number": (int,), "seed": (int,), "status": (str,),
        "message": (str,), "fingerprint": (str,), "returned": (int, float, type(None)), "seconds": (int, float),
    }  # fmt: skip
    if not isinstance(data, dict) or any(type(data.get(key)) not in kind for key, kind in kinds.items()):
        return None
    return Note(**{f.name: data[f.name] for f in fields(Note)})
