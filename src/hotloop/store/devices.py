"""`device/PID.json`: what each process saw of its device.

What lives here: the folder's name, and reading it. Invariant: what is answered is plain and bounded, whoever wrote the files;
an entry that is not one is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ..model import device as d

DEVICE_DIR = "device"
MOST_BYTES = 4 << 20
MOST_FILES = 256
_MOST_ROWS = 2000
_NUMBERS = [field.name for field in fields(d.DeviceProcess) if field.type == "int"]
_T = TypeVar("_T")


def read_devices(session: Path, read: Callable[[Path, int], bytes]) -> tuple[d.DeviceProcess, ...]:
    """The processes of a session that used a device; `read` answers the bytes of a regular file."""
    folder = session / DEVICE_DIR
    found = []
    try:
        if folder.is_symlink() or not folder.is_dir():
            return ()
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".json"))[:MOST_FILES]
    except OSError:
        return ()
    for name in names:
        try:
            found.append(_process(json.loads(read(folder / name, MOST_BYTES))))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return tuple(found)


def _process(said: dict[str, Any]) -> d.DeviceProcess:
    return d.DeviceProcess(
        **{name: _number(said[name]) for name in _NUMBERS}, name=_text(said["name"]), broken=_text(said["broken"]),
        labels=_rows(said["labels"], _label), transfers=_rows(said["transfers"], _transfer),
        pairs=_rows(said["pairs"], lambda row: d.DevicePair(_key(row["in"]), _key(row["for"]), _number(row["ns"]))),
        memory=_rows(said["memory"], lambda row: d.MemoryPoint(*map(_number, row))),
        peaks=_rows(said["peaks"], lambda row: (*_key(row[:2]), _number(row[2]))),
    )  # fmt: skip


def _label(row: dict[str, Any]) -> d.DeviceLabel:
    shard, path = _key(row["key"])
    names = ("spans", "host_ns", "most_ns", "blocked_ns", "copy_ns", "waited_ns")
    least_ns = _number(row["least_ns"] if "least_ns" in row else row["sure_ns"])  # as it was called until 2026-11
    return d.DeviceLabel(shard, path, least_ns=least_ns, **{name: _number(row[name]) for name in names})


def _transfer(row: dict[str, Any]) -> d.Transfer:
    if row["direction"] not in (d.TO_DEVICE, d.TO_HOST, d.SYNC, d.ON_HOST):
        raise ValueError("no such direction")
    numbers = (_number(row[name]) for name in ("count", "bytes", "pinned", "blocking", "ns"))
    return d.Transfer(
        _text(row["file"]), _number(row["line"]), _text(row["function"]), _text(row["call"]), row["direction"], *numbers
    )


def _rows(said: Any, read: Callable[[Any], _T]) -> tuple[_T, ...]:
    if not isinstance(said, list):
        raise TypeError("not a list")
    found = []
    for row in said[:_MOST_ROWS]:
        try:
            found.append(read(row))
        except (KeyError, TypeError, ValueError, IndexError):
            continue
    return tuple(found)


def _key(value: Any) -> tuple[int, int]:
    shard, path = value
    if type(path) is not int or path < -1:
        raise ValueError("no path")
    return _number(shard), min(path, 1 << 32)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError("not a number that can be")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:500]
