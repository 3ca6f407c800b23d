"""`summary.json`: a session as one row of `hotloop list`, so that a folder of many sessions is listed at once.

What lives here: the file's shape, writing it and reading it back. It holds for the rules it was made by; those who ask for it
with other rules get none, and make it again. Invariant: what is read is plain and bounded, whoever wrote the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..errors import UnreadableError
from .reader import read_json
from .rules import rules_version
from .writer import write_json

SUMMARY_FILE = "summary.json"
_MOST_BYTES = 1 << 16
_MOST_CHARS = 500


def write_summary(session: str | os.PathLike[str], row: dict[str, Any]) -> None:
    """Into the session's directory, replacing what is there."""
    write_json(str(Path(session, SUMMARY_FILE)), {"rules": rules_version(), "row": row})


def read_summary(session: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The row of these rules; None where there is none, or where it is not one."""
    try:
        said = read_json(Path(session, SUMMARY_FILE), _MOST_BYTES)
    except UnreadableError:
        return None
    row = said.get("row") if isinstance(said, dict) and said.get("rules") == rules_version() else None
    return row if isinstance(row, dict) and all(map(_is_plain, row.items())) else None


def _is_plain(item: tuple[Any, Any]) -> bool:
    value = item[1]
    if isinstance(value, str):
        return len(value) <= _MOST_CHARS
    return value is None or (isinstance(value, int | float) and 0 <= value < 1e15)
