"""What HotLoop predicted, and what `hotloop ab` measured then: one small file per user.

What lives here: where it is (`$XDG_DATA_HOME/hotloop/predictions.jsonl`), adding a row, reading all. Invariant: rows are only
added; one that cannot be read is passed by; the file never grows beyond MOST_ROWS rows by more than half.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..model.history import Outcome, parse_outcome

MOST_ROWS = 1000
_MOST_BYTES = 4 << 20


def predictions_file() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "hotloop" / "predictions.jsonl"


def add_outcomes(outcomes: Iterable[Outcome]) -> Path | None:
    """Keep them; answers the file, None where there was nothing to keep."""
    lines = [json.dumps(outcome.as_dict()) for outcome in outcomes]
    if not lines:
        return None
    path = predictions_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    known = _lines(path)
    if len(known) > 1.5 * MOST_ROWS:
        path.write_text("".join(f"{line}\n" for line in known[-MOST_ROWS:]), encoding="utf-8")
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return path


def read_outcomes() -> tuple[Outcome, ...]:
    """In the order they were measured."""
    return tuple(outcome for line in _lines(predictions_file()) if (outcome := _parse(line)) is not None)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_bytes()[-_MOST_BYTES:].decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _parse(line: str) -> Outcome | None:
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return parse_outcome(said)
