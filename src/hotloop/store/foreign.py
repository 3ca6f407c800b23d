"""Reading a `profiling_report.json` that nobody vouches for: ours, or one written by another profiler.

What lives here: JSON to a `Listing`. Invariant: a report is one if it has `summary.operations`; beyond that nothing is
believed. An operation whose time or calls make no sense is left out, with a sentence in `problems`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

from ..errors import UnreadableError
from ..model.listing import Books, Entry, Listing, Own, OwnCost
from .reader import MAX_JSON_BYTES, read_json

MAX_SECONDS = 1e11  # three thousand years
MAX_MB = 1e9  # a petabyte
MAX_COUNT = 1 << 63
MAX_DEPTH = 32
MAX_VALUES = 1_000_000  # ten thousand operations have a fifth of that
MAX_PROBLEMS = 20
MAX_FINDINGS = 20
_EXPECTED = "give a session directory, or a profiling_report.json"


class _SenselessError(Exception):
    pass


def read_report(path: str | os.PathLike[str]) -> tuple[Listing, dict[str, Any]]:
    """The operations of a report, and the report itself as plain data that can be written as JSON again."""
    if not os.path.exists(path):
        raise UnreadableError(f"{os.fspath(path)} does not exist; {_EXPECTED} with --input")
    real = Path(os.path.realpath(path))  # the user may name a link
    try:
        _refuse_bombs(real)
        data = _clean(read_json(real))
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {_EXPECTED}") from None
    return parse_report(os.fspath(path), data), data


def parse_report(source: str, data: Any) -> Listing:
    """The operations of a report that is plain data; `source` is its name."""
    summary = data.get("summary") if isinstance(data, dict) else None
    operations = summary.get("operations") if isinstance(summary, dict) else None
    if not isinstance(summary, dict) or not isinstance(operations, dict):
        raise UnreadableError(f"{source} is not a profiling report: it has no summary.operations; {_EXPECTED}")
    return _list(source, summary, operations)


def _refuse_bombs(path: Path) -> None:
    """Sixteen megabytes of `[],` would take seven hundred as Python objects: the values are counted before they are made."""
    if not path.is_file():
        raise UnreadableError(f"{path} is not a regular file")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read ({error.strerror or error})") from None
    if sum(text.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise UnreadableError(f"{path} holds more than {MAX_VALUES:,} values, as no report does")


def _clean(value: Any, depth: int = 0) -> Any:
    """The same data without what JSON cannot say (1e999 is read as infinity), changed in place."""
    if depth > MAX_DEPTH:
        raise UnreadableError(f"the file nests deeper than {MAX_DEPTH} levels, as no report does")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        value[key] = _clean(item, depth + 1)
    return None if isinstance(value, float) and not isfinite(value) else value


def _list(source: str, summary: dict[str, Any], operations: dict[str, Any]) -> Listing:
    problems: list[str] = []
    wall_s = _wall_of(summary, problems)
    books = _books_of(summary) if wall_s is not None else None
    entries = []
    for name, row in operations.items():
        try:
            entries.append(_entry(name, row, wall_s is not None, books is not None, problems))
        except _SenselessError as why:
            problems.append(f"operation {name[:60]!r} is left out: {why}")
    said = summary.get("problems")
    problems += [str(text)[:300] for text in said[:MAX_PROBLEMS]] if isinstance(said, list) else []
    if len(problems) > MAX_PROBLEMS:
        problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more such problems"]
    quality = summary.get("quality")
    quality = quality if wall_s is not None and isinstance(quality, dict) else {}
    return Listing(
        source=source,
        entries=tuple(entries),
        wall_s=wall_s,
        coverage=_or_none(summary, "coverage", 1.0) if wall_s is not None else None,
        books=books,
        losses=_losses_of(quality),
        own_cost=_own_cost_of(quality),
        lower_bounds=int(_or_none(summary, "lower_bounds", MAX_COUNT) or 0),
        findings=tuple(_findings_of(summary)) if wall_s is not None else (),
        problems=tuple(problems),
    )


def _findings_of(summary: dict[str, Any]) -> Iterator[str]:
    said = summary.get("findings")
    for row in said[:MAX_FINDINGS] if isinstance(said, list) else ():
        texts = [row.get(key) for key in ("cause", "title", "action")] if isinstance(row, dict) else []
        if texts and all(isinstance(text, str) for text in texts):
            cause, title, action = (str(text)[:300] for text in texts)
            yield f"{cause}: {title}; {action}"


def _entry(name: str, row: Any, ours: bool, own_known: bool, problems: list[str]) -> Entry:
    if not isinstance(row, dict):
        raise _SenselessError("it is not an object")
    total_s = _number(row, "total_time", MAX_SECONDS)
    calls = _count(row, "call_count")
    mean_s = _number(row, "avg_time", MAX_SECONDS) if "avg_time" in row else total_s / max(1, calls)
    share = own = None
    if ours:
        share = min(1.0, _number(row, "share", 2.0))  # a rounding above 1 is harmless, an arbitrary number is not
        own = _own_of(row) if own_known else Own(_number(row, "self_time", MAX_SECONDS), None)
    memory_mb = [_megabytes(name, row, key, problems) for key in ("memory_peak_mb", "gpu_memory_peak_mb")]
    if ours and not memory_mb[0] and row.get("memory_method") == "":
        memory_mb[0] = None  # our way to say that nobody looked
    return Entry(name, calls, total_s, mean_s, share, own, *memory_mb)


def _own_of(row: dict[str, Any]) -> Own:
    return Own(*(_number(row, key, MAX_SECONDS) for key in ("wall_self_time", "wall_waiting_time", "wall_outside_time")))


def _megabytes(name: str, row: dict[str, Any], key: str, problems: list[str]) -> float | None:
    """A bad memory figure costs itself only: the operation's time is still good."""
    if row.get(key) is None:
        return None
    try:
        return _number(row, key, MAX_MB)
    except _SenselessError as why:
        problems.append(f"operation {name[:60]!r}: {why}; taken as not measured")
        return None


def _wall_of(summary: dict[str, Any], problems: list[str]) -> float | None:
    """Only our reports have a wall time."""
    if "wall_time" not in summary:
        return None
    try:
        return _number(summary, "wall_time", MAX_SECONDS)
    except _SenselessError as why:
        problems.append(f"{why}: time% is of the sum of all operations instead")
        return None


def _books_of(summary: dict[str, Any]) -> Books | None:
    parts = [_or_none(summary, key, MAX_SECONDS) for key in ("waiting_time", "unattributed_time", "profiler_time")]
    later = [
        _or_none(summary, key, MAX_SECONDS) for key in ("inferred_time", "garbage_time", "startup_time")
    ]  # not in old ones
    return None if None in parts else Books(*(part or 0.0 for part in (*parts, *later)))


def _losses_of(quality: dict[str, Any]) -> dict[str, int] | None:
    losses = quality.get("losses")
    try:
        return {name: _count(losses, name) for name in losses} if isinstance(losses, dict) else None
    except _SenselessError:
        return None


def _own_cost_of(quality: dict[str, Any]) -> OwnCost | None:
    parts = [
        _or_none(quality, key, limit)
        for key, limit in (("own_cost_ns_per_span", 1e9), ("own_cost_error_ns", 1e9), ("profiler_share", 1.0))
    ]
    return None if None in parts else OwnCost(*(part or 0.0 for part in parts))


def _or_none(row: dict[str, Any], key: str, limit: float) -> float | None:
    try:
        return _number(row, key, limit)
    except _SenselessError:
        return None


def _number(row: dict[str, Any], key: str, limit: float) -> float:
    value = row.get(key)
    if key not in row:
        raise _SenselessError(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _SenselessError(f"{key} is not a number")
    if not 0 <= value <= limit:  # compares integers of any length without turning them into floats
        raise _SenselessError(f"{key} is {'negative' if value < 0 else 'absurdly large'}")
    return float(value)


def _count(row: dict[str, Any], key: str) -> int:
    value = _number(row, key, MAX_COUNT)
    if value != int(value):
        raise _SenselessError(f"{key} is not a whole number")
    return int(row[key])
