"""`hotloop run`: starts the script as a child, samples it from outside, and says afterwards what happened.

What lives here: the parent's side. The child is the user's command, word for word: same interpreter, directory, arguments and
standard streams; only three environment variables are set. Invariant: nothing the supervisor does or fails to do changes how
the script ends, and if the supervisor is killed the script runs on and the recording stays readable.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import HotloopError, UsageError
from ..model.trace import TraceSettings
from ..record import host
from ..record.recorder import new_session_directory, sampling_options
from ..store import schema
from ..store.writer import write_json
from ..version import __version__
from .adapters import all_hooks, installed_adapters
from .progress import ProgressReader, StatusLine
from .system import Sampler

BOOTSTRAP = Path(__file__).parent / "bootstrap"
GRACE_S = 10.0  # between SIGINT, SIGTERM and SIGKILL when a limit is reached
_TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, and how far."""

    command: tuple[str, ...]  # as the operating system gets it
    name: str
    out: Path | None = None  # the session directory itself
    duration_s: float | None = None
    max_iterations: int | None = None
    quiet: bool = False
    hooks: tuple[str, ...] = field(default_factory=all_hooks)
    lines: str = "on"  # on, few or off
    trace: TraceSettings | None = None
    probe: bool = True
    stdout: int | None = None  # a descriptor for what the script prints, in place of ours


@dataclass(frozen=True, slots=True)
class Outcome:
    session: Path
    code: int  # as a shell would say it: 128 + n for a signal
    how: str  # one clause: "ended by itself", "killed by SIGKILL"


def resolve_command(words: Sequence[str], module: str | None) -> tuple[str, ...]:
    """The command line of the child: a script, a module or an installed Python command."""
    if module is not None:
        return (sys.executable, "-m", module, *words)
    if not words:
        raise UsageError("name a script: hotloop run train.py, or a module: hotloop run -m package.train")
    first = words[0]
    if os.path.isfile(first):
        return (sys.executable, *words)
    if os.path.isdir(first) and os.path.isfile(os.path.join(first, "__main__.py")):
        return (sys.executable, *words)
    found = shutil.which(first) if os.sep not in first else None
    if found is None:
        raise UsageError(f"{first} is neither a file here nor a command on the path; give the path of the script")
    with open(found, "rb") as file:
        head = file.read(200).split(b"\n")[0]
    if not head.startswith(b"#!") or b"python" not in head:
        raise UsageError(f"{found} is not a Python program; hotloop run takes Python scripts, modules and commands")
    return (sys.executable, found, *words[1:])


def run_child(plan: Plan) -> Outcome:
    """Run the command to its end, whatever that is."""
    session = _make_session(plan)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(BOOTSTRAP), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment["HOTLOOP_SESSION"] = str(session.resolve())
    environment["HOTLOOP_RUN"] = "root"
    meta = _describe(plan)
    write_json(str(session / schema.SESSION_FILE), meta)
    forward = _Forwarder()
    try:
        child = subprocess.Popen(plan.command, env=environment, stdout=plan.stdout)
    except OSError as error:
        forward.restore()
        raise UsageError(f"{plan.command[0]} could not be started ({error.strerror or error})") from None
    forward.to(child)
    meta["pid"] = child.pid
    write_json(str(session / schema.SESSION_FILE), meta)
    try:
        stopped = _watch(child, session, plan)
    finally:
        forward.restore()
    code, how = describe_exit(child.returncode, stopped)
    meta |= {"end_unix_s": time.time(), "ended": True, "exit": {"code": code, "how": how}}
    _try_write(session, meta)
    return Outcome(session, code, how)


def describe_exit(returncode: int, stopped: str = "") -> tuple[int, str]:
    """A shell's exit code, and the way it ended in words.

    >>> describe_exit(0), describe_exit(-9)[0]
    ((0, 'ended by itself'), 137)
    """
    if returncode >= 0:
        how = "ended by itself" if returncode == 0 else f"ended with exit code {returncode}"
        return returncode, f"{how} {stopped}".strip()
    name = signal.Signals(-returncode).name if -returncode in set(signal.Signals) else f"signal {-returncode}"
    hint = {"SIGKILL": " (kill -9, or the kernel ran out of memory)", "SIGSEGV": " (a crash in native code)"}.get(name, "")
    return 128 - returncode, f"killed by {name}{hint} {stopped}".strip()


def _watch(child: subprocess.Popen[bytes], session: Path, plan: Plan) -> str:
    """Until the child has ended; answers why we ended it, if we did."""
    begin = time.monotonic()
    sampler = Sampler(child.pid, str(session))
    line, reader = StatusLine(enabled=not plan.quiet), ProgressReader(session, child.pid)
    next_look, stopped, steps = begin + 1.0, "", _escalation()
    next_step = 0.0
    has_ended = _waiter(child)
    try:
        while True:
            if has_ended(_TICK_S):
                return stopped
            now = time.monotonic()
            sampler.tick(now)
            if now >= next_look and (line.enabled or plan.max_iterations):
                progress = reader.read()
                took = time.monotonic() - now
                next_look = now + max(1.0, 100 * took)  # reading may take 1 % of a core
                line.show(now - begin, progress)
                if plan.max_iterations and progress and progress.iterations >= plan.max_iterations and not stopped:
                    stopped = f"after {progress.iterations} iterations, as asked for"
            if plan.duration_s is not None and now - begin >= plan.duration_s and not stopped:
                stopped = f"after {plan.duration_s:g} s, as asked for"
            if stopped and now >= next_step:
                child.send_signal(next(steps))
                next_step = now + GRACE_S
    finally:
        line.close()
        sampler.take()


def _waiter(child: subprocess.Popen[bytes]) -> Callable[[float], bool]:
    """A function that waits for the child's end, so many seconds at most. Where the kernel can tell us of it we sleep until
    then; `Popen.wait` with a limit wakes up twenty times a second, and takes the core away from those who train."""
    try:
        fd = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # another system, an older kernel, a sandbox that forbids it
        return lambda seconds: _wait(child, seconds)
    ends = select.poll()
    ends.register(fd, select.POLLIN)

    def has_ended(seconds: float) -> bool:
        if not ends.poll(seconds * 1000):
            return False
        os.close(fd)
        return _wait(child, None)

    return has_ended


def _wait(child: subprocess.Popen[bytes], seconds: float | None) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _escalation() -> Any:
    yield signal.SIGINT
    yield signal.SIGTERM
    while True:
        yield signal.SIGKILL


class _Forwarder:
    """Signals that are meant for the script reach it, and do not end us before it has ended.

    Ctrl-C goes to the whole group, so the script has it already; SIGTERM and SIGHUP come to us alone and are passed on.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []
        self._old = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def to(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for number in self._pending:
            child.send_signal(number)

    def restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            return
        if self._child is None:
            self._pending.append(number)
        else:
            self._child.send_signal(number)


def _make_session(plan: Plan) -> Path:
    session = plan.out or new_session_directory(Path("runs"), plan.name)
    if session.is_dir() and any(session.iterdir()):
        raise UsageError(f"{session} exists and is not empty; give another --out")
    try:
        (session / schema.SHARD_DIR).mkdir(parents=True)
    except OSError as error:
        raise HotloopError(
            f"{session} could not be made ({error.strerror or error}); choose another place with --out"
        ) from None
    return session


def _describe(plan: Plan) -> dict[str, Any]:
    return {
        "schema": schema.VERSION,
        "tool": "hotloop run",
        "tool_version": __version__,
        "name": plan.name,
        "pid": 0,
        "start_unix_s": time.time(),
        "ended": False,
        "command": host.redact(list(plan.command)),
        "cwd": os.getcwd(),
        "git": host.git_commit(os.getcwd()),
        "host": host.describe(),
        "options": {
            "hooks": ",".join(plan.hooks),
            "adapters": {name: where for name, where in installed_adapters().items() if name in plan.hooks},
            "probe": plan.probe,
            **sampling_options(plan.lines),
            **({"torch_trace": plan.trace.as_dict()} if plan.trace is not None else {}),
        },
    }


def _try_write(session: Path, meta: dict[str, Any]) -> None:
    try:
        write_json(str(session / schema.SESSION_FILE), meta)
    except OSError:
        pass  # the disk is full: what was written at the start stays
