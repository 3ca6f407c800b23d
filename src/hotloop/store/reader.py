"""Reading a session: all shards of a directory, live or dead, merged into one immutable `SessionData`.

What lives here: files to data, with NumPy for the events. Invariant: nothing outside the session's directory is opened,
no link in it is followed, and a bad file costs its own data only, with a sentence in `problems`.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UnreadableError
from ..model.job import order_processes
from ..model.session import DIED, ENDED, RUNNING, Events, Process, SessionData
from ..model.shard import WAIT, Shard
from . import schema as s
from .blocks import walk
from .devices import read_devices
from .machine import MACHINE_FILE, read_machine
from .machine import MOST_BYTES as MOST_MACHINE_BYTES
from .operators import MOST_OPS_BYTES, OPS_FILE, read_ops
from .probes import MOST_BYTES as MOST_PROBES_BYTES
from .probes import PROBES_FILE, read_probes
from .shard import decode
from .sources import SOURCES_FILE, read_sources
from .system import SYSTEM_FILE, read_samples, summarise

MAX_SHARD_BYTES = 256 << 20
MAX_JSON_BYTES = 16 << 20
MAX_META_BYTES = 4 << 20  # ours has a few kilobytes; parsed, JSON takes up to thirty times its size
MAX_META_DEPTH = 32
MAX_SHARDS = 4096
MAX_PROBLEMS = 50
_LOOKS_APART = 12  # intervals between two looks of the sampler: eight in a long run, half as many more by chance
_FIELDS = map(s.parse, s.RECORDS["EventRec"].split())
_EVENT = np.dtype([(name, f"<u{8 // len(kind)}") for names, kind, _ in _FIELDS for name in names.split("|")])


def read_session(path: str | os.PathLike[str]) -> SessionData:
    """The session in a directory (or its `session.json`), whatever state its processes are in."""
    directory = Path(path)
    if directory.name == s.SESSION_FILE:
        directory = directory.parent
    try:
        is_directory = stat.S_ISDIR(os.stat(directory).st_mode)
    except FileNotFoundError:
        raise UnreadableError(f"{directory} does not exist; `hotloop list` shows the sessions that do") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UnreadableError(
            f"{_shown(str(directory))[:200]} cannot be opened ({why}); `hotloop list` shows sessions"
        ) from None
    if not is_directory:
        raise UnreadableError(f"{directory} is not a session directory; give the folder that holds {s.SESSION_FILE}")
    problems: list[str] = []
    meta = _read_meta(directory / s.SESSION_FILE, problems)
    shards, tables = _read_shards(directory / s.SHARD_DIR, problems)
    if not shards:
        why = f" ({problems[0]})" if problems else ""
        raise UnreadableError(f"{directory} holds no recording{why}; was a span recorded in it?")
    order = order_processes(shards, meta.get("pid"))
    shards, tables = [shards[i] for i in order], [tables[i] for i in order]
    processes = tuple(Process(i, shard.pid, shard.name, _state(shard, shards)) for i, shard in enumerate(shards))
    for shard, process in zip(shards, processes, strict=True):
        problems += [f"process {shard.pid}: {text}" for text in (*shard.problems, *_missing_events(shard, process.state))]
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} problems more"]
    samples = tuple(read_samples(directory)) if _is_file(directory / SYSTEM_FILE) else ()
    if samples:  # they are there even if the process was killed before it could sum them up
        said = meta.get("resources")
        meta = {**meta, "resources": {**(said if isinstance(said, dict) else {}), **summarise(samples)}}
    return SessionData(
        directory, meta, tuple(shards), processes, _merge_events(tables), tuple(problems), samples,
        read_sources(_read_optional(directory / SOURCES_FILE, MAX_META_BYTES)), _read_hooks(directory / s.HOOKS_FILE),
        read_devices(directory, _read_file), read_ops(_read_optional(directory / OPS_FILE, MOST_OPS_BYTES)),
        read_machine(_read_optional(directory / MACHINE_FILE, MOST_MACHINE_BYTES)),
        read_probes(_read_optional(directory / PROBES_FILE, MOST_PROBES_BYTES)),
    )  # fmt: skip


def _read_optional(path: Path, limit: int) -> bytes:
    """A file that not every session has; nothing where it is not there, or no file."""
    try:
        return _read_file(path, limit)
    except OSError:
        return b""


def _read_hooks(path: Path) -> tuple[dict[str, str], ...]:
    """One line each; those that are not ours are left out."""
    found = []
    for row in _read_optional(path, 1 << 19).decode("utf-8", "replace").splitlines()[:5000]:
        try:
            said = json.loads(row)
            found.append({key: str(said[key])[:300] for key in ("pid", "integration", "state", "detail")})
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return tuple(found)


def _is_file(path: Path) -> bool:
    """Is it a regular file? One that is a pipe would be waited for."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _read_file(path: Path, limit: int) -> bytes:
    """A regular file's bytes, up to a limit; links and devices are refused."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(min(limit, status.st_size))  # a buffer of that size is made at once: never of the limit's
    finally:
        os.close(fd)


def _read_meta(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        data = read_json(path, MAX_META_BYTES)
    except UnreadableError as error:
        problems.append(str(error))
        return {}
    if isinstance(data, dict) and _is_plain(data):
        return data
    problems.append(f"{path.name} does not hold what describes a session; it is left out")
    return {}


def _is_plain(data: Any) -> bool:
    """Can it be written again: no infinity, not too deep? Without recursion: that is what a deep one is made to exhaust."""
    layer = [data]
    for _ in range(MAX_META_DEPTH):
        if any(isinstance(x, float) and not math.isfinite(x) for x in layer):
            return False
        layer = [value for x in layer if isinstance(x, dict | list) for value in (x.values() if isinstance(x, dict) else x)]
    return not layer


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> Any:
    """JSON from a file nobody vouches for."""
    try:
        text = _read_file(path, limit + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror or error})") from None
    if len(text) > limit:
        raise UnreadableError(f"{path} is larger than {limit >> 20} MB; that is no report of ours")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not valid JSON ({str(error)[:80]})") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _shown(name: str) -> str:
    """A file's name as it may stand in a sentence."""
    return name if name.isprintable() else ascii(name)[1:-1]


def _read_shards(directory: Path, problems: list[str]) -> tuple[list[Shard], list[np.ndarray[Any, Any]]]:
    latest: dict[tuple[int, int], tuple[Shard, np.ndarray[Any, Any]]] = {}
    try:
        if directory.is_symlink():
            raise OSError("it is a link, and no link is followed")
        names = sorted(entry.name for entry in os.scandir(directory) if entry.name.endswith(s.SHARD_SUFFIX))
    except OSError as error:
        problems.append(f"{directory} cannot be listed ({error.strerror or error})")
        return [], []
    if len(names) > MAX_SHARDS:
        problems.append(f"{len(names)} shards; the first {MAX_SHARDS} are read")
    for name in names[:MAX_SHARDS]:
        try:
            data = _read_file(directory / name, MAX_SHARD_BYTES)
            shard = decode(data)
            events = _events(data, shard, problems)
        except UnreadableError as error:
            problems.append(f"{_shown(name)}: {error}")
            continue
        except OSError as error:
            problems.append(f"{_shown(name)} cannot be read ({error.strerror or error})")
            continue
        if len(data) == MAX_SHARD_BYTES:
            problems.append(f"{_shown(name)} is read up to {MAX_SHARD_BYTES >> 20} MB")
        # A process that was reset has one shard per epoch for a moment: the latest counts.
        key = (shard.pid, shard.process_start)
        if key not in latest or latest[key][0].epoch < shard.epoch or not shard.process_start:
            latest[key if shard.process_start else (shard.pid, shard.id)] = (shard, events)
    pairs = list(latest.values())
    return [shard for shard, _ in pairs], [events for _, events in pairs]


def _events(data: bytes, shard: Shard, problems: list[str]) -> np.ndarray[Any, Any]:
    """The events of one shard: the timeline's windows, then the ring's latest."""
    pieces = []
    blocks, _ = walk(data)
    for block in blocks:
        if block.kind == s.EVENTS and block.used:
            pieces.append(np.frombuffer(data, _EVENT, block.used, block.offset))
        elif block.kind == s.RING and block.capacity:
            written = shard.ring_events
            # The slot at the head may have been half overwritten when the process died: it is left out.
            kept = min(written, block.capacity - 1) if written >= block.capacity else written
            slots = (np.arange(kept, dtype=np.uint64) + np.uint64(written - kept)) % np.uint64(block.capacity)
            pieces.append(np.frombuffer(data, _EVENT, block.capacity, block.offset)[slots.astype(np.int64)])
    events = _table(sum(len(piece) for piece in pieces))
    if pieces:
        np.concatenate(pieces, out=events)
    good = (
        (events["path"] < len(shard.paths))
        & (events["track"] < max(1, len(shard.tracks)))
        & (events["start"] > 0)
        & (events["start"] <= shard.end_ns)
        & (events["dur"] <= max(0, shard.end_ns - shard.start_ns))
    )
    if bad := len(events) - int(np.count_nonzero(good)):
        problems.append(f"process {shard.pid}: {bad} of {len(events)} events hold impossible values and are left out")
        events = events[good]
    return events


def _table(events: int) -> np.ndarray[Any, Any]:
    # Memory of its own: what malloc gets back from between other things stays with the process.
    return np.frombuffer(mmap.mmap(-1, events * _EVENT.itemsize), _EVENT) if events else np.empty(0, _EVENT)


def _missing_events(shard: Shard, state: str) -> list[str]:
    """Every span leaves an event. A block of them that is gone altogether shows in nothing else."""
    closing = len(shard.tracks)  # on each, one span may have been counted when the process died, and no more
    missing = shard.recorded - shard.ring_events - shard.logged_events - closing
    if state == RUNNING or missing <= 0 or not shard.losses.keys().isdisjoint(("budget", "disk")):
        return []
    return [f"{missing} events are missing"]


def _merge_events(tables: list[np.ndarray[Any, Any]]) -> Events:
    """All events in order of their start.

    The list is emptied and the rows become columns that are put in order in place: ten million events take 360 MB, and at
    no time much more than that.
    """
    ends = np.cumsum([len(table) for table in tables])
    columns = {name: np.empty(int(ends[-1]) if len(ends) else 0, _EVENT[name]) for name in _EVENT.names or ()}
    for i, end in enumerate(ends):
        for name, column in columns.items():
            column[end - len(tables[i]) : end] = tables[i][name]
        tables[i] = _table(0)
    order = _order(columns["start"])
    for column in columns.values():
        _reorder(column, order)
    for at in range(0, len(order), _SLICE):
        order[at : at + _SLICE] = np.searchsorted(ends, order[at : at + _SLICE], side="right")  # the table it came from
    for column in (order, *columns.values()):
        column.setflags(write=False)
    start_ns, dur_ns = columns["start"].view(np.int64), columns["dur"].view(np.int64)
    return Events(order, columns["track"], columns["path"], start_ns, dur_ns, columns["iteration"], columns["flags"])


_SLICE = 1 << 19


def _order(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What `argsort` answers, one stretch of time after the other: at once it would take three times the memory."""
    order = np.empty(len(times), np.uint32)  # 2³² events would be 150 GB
    edges = np.unique(np.sort(times[:: max(1, len(times) // 4096)])[:: max(1, 4096 * _SLICE // max(1, len(times)))])
    done = 0
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        inside = np.flatnonzero((times >= low) & (times < high) if high is not None else times >= low)
        order[done : done + len(inside)] = inside[np.argsort(times[inside], kind="stable")]
        done += len(inside)
    return order


def _reorder(column: np.ndarray[Any, Any], order: np.ndarray[Any, Any]) -> None:
    """`column[:] = column[order]`, 32 bits at a time."""
    words = column.view(np.uint32).reshape(len(column), -1) if len(column) else column.reshape(0, 0)
    moved = np.empty(len(order), np.uint32)
    for half in range(words.shape[1]):
        for at in range(0, len(order), _SLICE):
            moved[at : at + _SLICE] = words[order[at : at + _SLICE], half]
        words[:, half] = moved


def _state(shard: Shard, shards: list[Shard]) -> str:
    """Ended, still running, or died. What was there when the learner's loop was over, and is gone now, went with the run."""
    if shard.ended:
        return ENDED
    try:
        with open(f"/proc/{shard.pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        started = int(fields[19])
        if started == shard.process_start and fields[0] not in (b"Z", b"X"):
            return RUNNING
    except (OSError, ValueError, IndexError):
        pass
    late = _LOOKS_APART * shard.samples.interval_ns  # it may have lived on for that long after it was seen
    learner = shards[0]
    over_ns = learner.last_work_ns or max(other.last_work_ns for other in shards)
    outlived = learner.ended and learner is not shard and shard.end_ns + late >= over_ns > 0
    there = late > 0 and shard.start_ns <= over_ns  # a sampler saw it; one begun after the loop was no part of it
    idle = all(shard.label_of(span.path).kind == WAIT for span in shard.open_spans)
    return ENDED if outlived and (there or idle) else DIED  # what else was at work at its end was not let go
