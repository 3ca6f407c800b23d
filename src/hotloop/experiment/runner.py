"""Runs the slots of a schedule, one fresh process after the other, and goes on where it was interrupted.

What lives here: the loop, its progress, and what becomes of a command that fails. Invariant: what has a note is not run again;
what was interrupted is thrown away and run anew.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import HotloopError, UsageError
from .command import Command, fill
from .reading import find_problem
from .schedule import Slot
from .trials import FAILED, OK, OUTPUT, Note, find_return, read_note, read_tail, run_command, write_note


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the program."""

    name: str
    command: Command
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    values: dict[str, object] = field(default_factory=dict)  # of the command's placeholders
    patch: bytes = b""  # what was changed in `folder`, if that is a copy

    @property
    def fingerprint(self) -> str:
        """Changes with anything that changes what is run."""
        what = [self.command.text, sorted(self.environment.items()), sorted((k, str(v)) for k, v in self.values.items())]
        return hashlib.sha256(json.dumps(what).encode() + self.patch).hexdigest()[:16]


@dataclass(slots=True)
class Progress:
    """What to tell a person meanwhile."""

    say: Callable[[str], None]
    total: int
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def start(self, slot: Slot, left: Sequence[Slot]) -> None:
        self.say(f"run {slot.number}/{self.total}: round {slot.round}, {slot.arm}{self._left(left)}")

    def _left(self, slots: Sequence[Slot]) -> str:
        known = [s for times in self.seconds.values() for s in times]
        if not known:
            return ""
        usual = sum(known) / len(known)
        means = {arm: sum(times) / len(times) for arm, times in self.seconds.items()}
        return f"; about {clock_text(sum(means.get(slot.arm, usual) for slot in slots))} left"


def clock_text(seconds: float) -> str:
    """
    >>> clock_text(59.6), clock_text(3725)
    ('1:00 min', '1:02:05 h')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02} h"
    return f"{whole // 60}:{whole % 60:02} min"


def name_file(text: str) -> str:
    """A text as part of a file's name.

    >>> name_file("push: loop/batch")
    'push_loop_batch'
    """
    return re.sub(r"[^A-Za-z0-9.=-]+", "_", text).strip("_.")[:40] or "unnamed"


def session_of(out: Path, slot: Slot) -> Path:
    return out / f"{slot.number:03}-{name_file(slot.arm)}"


@dataclass(frozen=True, slots=True)
class Setting:
    """What all runs of an experiment have in common."""

    out: Path
    experiment: str  # sessions of one experiment can be compared in pairs
    seed: int = 0  # a round gets this and its number
    unit: str | None = None
    needs_unit: bool = True
    essential: Collection[str] = ()  # arms without which nothing can be said


def run_slots(
    slots: Sequence[Slot], arms: Mapping[str, Arm], setting: Setting, say: Callable[[str], None]
) -> tuple[dict[str, list[Path]], dict[str, str]]:
    """Sessions of each arm, and what went wrong with those that failed."""
    found: dict[str, list[Path]] = {name: [] for name in arms}
    failed: dict[str, str] = {}
    progress = Progress(say, len(slots))
    _check_folder(setting.out)
    for i, slot in enumerate(slots):
        arm, session = arms[slot.arm], session_of(setting.out, slot)
        if slot.arm in failed:
            continue
        note = _find_note(session, arm)
        if note is None:
            progress.start(slot, [s for s in slots[i:] if s.arm not in failed])
            with _ended_by_sigterm():
                note = _run(slot, arm, session, setting)
            progress.seconds.setdefault(slot.arm, []).append(note.seconds)
        if note.status == OK:
            found[slot.arm].append(session)
            continue
        failed[slot.arm] = note.message
        if slot.arm in setting.essential:
            raise UsageError(f"{slot.arm}: {arm.command.text}: {note.message} (its output: {session / OUTPUT})")
        say(f"{slot.arm}: {note.message}; it is left out")
    return found, failed


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does: the run in progress first. Left alone, it would go on by itself."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def _check_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HotloopError(f"{out} could not be made ({error.strerror or error}); choose another place with --out") from None


def _find_note(session: Path, arm: Arm) -> Note | None:
    """The note of a run that was made before; what failed or was interrupted is cleared away."""
    note = read_note(session)
    if note is not None and note.status == OK:
        if note.fingerprint != arm.fingerprint:
            raise UsageError(f"{session} was made by another command than {arm.name} is now; give another --out")
        return note
    if session.is_dir():
        shutil.rmtree(session)
    return None


def _run(slot: Slot, arm: Arm, session: Path, setting: Setting) -> Note:
    seed = setting.seed + slot.round
    command = fill(arm.command, {**arm.values, "seed": seed})
    environment = {"PYTHONHASHSEED": str(seed % 2**32), **arm.environment}  # the same order of sets within a round
    message, seconds = run_command(command, arm.folder, environment, session)
    if not message and setting.needs_unit:
        message = find_problem(session, setting.unit)  # now, and not after the last of all runs
    returned = None if message else find_return(read_tail(session / OUTPUT))
    status, what = FAILED if message else OK, arm.fingerprint
    note = Note(setting.experiment, slot.arm, slot.round, slot.number, seed, status, message, what, returned, seconds)
    write_note(session, note)
    return note
