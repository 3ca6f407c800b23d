"""Reading a session: all shards of a directory, live or dead, merged into one immutable Session.

What lives here: files to data, with NumPy for the events. Invariant: nothing outside the session's directory is opened,
no link in it is followed, and a bad file costs its own data only, with a sentence in `problems`.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UnreadableError
from ..model.session import DIED, ENDED, RUNNING, Events, Process, SessionData
from ..model.shard import Shard
from . import schema as s
from .shard import decode, walk

MAX_SHARD_BYTES = 256 << 20
MAX_JSON_BYTES = 16 << 20
MAX_SHARDS = 4096
_EVENT = np.dtype([("start", "<u8"), ("dur", "<u8"), ("path", "<u4"), ("track", "<u4"), ("iteration", "<u4"), ("flags", "<u4")])


class Session(SessionData):
    """One recorded run.

    `Session.load(directory)` reads it, whatever state the processes are in.
    """

    __slots__ = ()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Session:
        """The session in a directory (or its `session.json`)."""
        directory = Path(path)
        if directory.name == s.SESSION_FILE:
            directory = directory.parent
        if not directory.exists():
            raise UnreadableError(f"{directory} does not exist; `hotloop list` shows the sessions that do")
        if not directory.is_dir():
            raise UnreadableError(f"{directory} is not a session directory; give the folder that holds {s.SESSION_FILE}")
        problems: list[str] = []
        meta = _read_meta(directory / s.SESSION_FILE, problems)
        shards, tables = _read_shards(directory / s.SHARD_DIR, problems)
        if not shards:
            why = f" ({problems[0]})" if problems else ""
            raise UnreadableError(f"{directory} holds no recording{why}; was a span recorded in it?")
        main = meta.get("pid")
        order = sorted(range(len(shards)), key=lambda i: (shards[i].pid != main, shards[i].start_ns, shards[i].id))
        shards, tables = [shards[i] for i in order], [tables[i] for i in order]
        processes = tuple(Process(i, shard.pid, shard.name, _state(shard)) for i, shard in enumerate(shards))
        for shard in shards:
            problems += [f"process {shard.pid}: {text}" for text in shard.problems]
        return cls(directory, meta, tuple(shards), processes, _merge_events(tables), tuple(problems))


def _read_file(path: Path, limit: int) -> bytes:
    """A regular file's bytes, up to a limit; links and devices are refused."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("not a regular file")
        return file.read(limit)


def _read_meta(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        data = read_json(path)
    except UnreadableError as error:
        problems.append(str(error))
        return {}
    if isinstance(data, dict):
        return data
    problems.append(f"{path.name} does not hold an object; it is left out")
    return {}


def read_json(path: Path) -> Any:
    """JSON from a file nobody vouches for."""
    try:
        text = _read_file(path, MAX_JSON_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror or error})") from None
    if len(text) > MAX_JSON_BYTES:
        raise UnreadableError(f"{path} is larger than {MAX_JSON_BYTES >> 20} MB; that is no report of ours")
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path} is not valid JSON ({str(error)[:80]})") from None


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _read_shards(directory: Path, problems: list[str]) -> tuple[list[Shard], list[np.ndarray[Any, Any]]]:
    latest: dict[tuple[int, int], tuple[Shard, np.ndarray[Any, Any]]] = {}
    try:
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
            problems.append(f"{name}: {error}")
            continue
        except OSError as error:
            problems.append(f"{name} cannot be read ({error.strerror or error})")
            continue
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
    events = np.concatenate(pieces) if pieces else np.empty(0, _EVENT)
    good = (
        (events["path"] < len(shard.paths))
        & (events["track"] < max(1, len(shard.tracks)))
        & (events["start"] > 0)
        & (events["start"] <= shard.end_ns)
        & (events["dur"] <= max(0, shard.end_ns - shard.start_ns))
    )
    if bad := len(events) - int(np.count_nonzero(good)):
        problems.append(f"process {shard.pid}: {bad} of {len(events)} events hold impossible values and are left out")
    return events[good]


def _merge_events(tables: list[np.ndarray[Any, Any]]) -> Events:
    merged = np.concatenate(tables) if tables else np.empty(0, _EVENT)
    owner = np.repeat(np.arange(len(tables), dtype=np.uint32), [len(t) for t in tables])
    order = np.argsort(merged["start"], kind="stable")
    merged, owner = merged[order], owner[order]
    columns = {
        "shard": owner,
        "track": merged["track"],
        "path": merged["path"],
        "start_ns": merged["start"].astype(np.int64),
        "dur_ns": merged["dur"].astype(np.int64),
        "iteration": merged["iteration"],
        "flags": merged["flags"],
    }
    out = {}
    for name, column in columns.items():
        array = np.ascontiguousarray(column)
        array.setflags(write=False)
        out[name] = array
    return Events(**out)


def _state(shard: Shard) -> str:
    """Ended by itself, still running, or died."""
    if shard.ended:
        return ENDED
    try:
        with open(f"/proc/{shard.pid}/stat", "rb") as file:
            started = int(file.read().rsplit(b")", 1)[1].split()[19])
    except (OSError, ValueError, IndexError):
        return DIED
    return RUNNING if started == shard.process_start else DIED
