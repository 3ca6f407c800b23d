"""The log files: `raw/NAME_TIME.json` and `reports/NAME_TIME_summary.txt` below one folder.

What lives here: their names, and writing them. Invariant: no file is overwritten.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..record.recorder import safe_name
from ..store.writer import write_json


def write_logs(folder: Path, name: str, raw: dict[str, Any], summary: str) -> tuple[Path, Path]:
    """Both files, new ones; a name never leads out of the folder."""
    stem = f"{safe_name(name)}_{time.strftime('%Y%m%d_%H%M%S')}"
    number = 1
    while True:
        unique = stem if number == 1 else f"{stem}_{number}"
        data, report = folder / "raw" / f"{unique}.json", folder / "reports" / f"{unique}_summary.txt"
        if not data.exists() and not report.exists():
            break
        number += 1
    data.parent.mkdir(parents=True, exist_ok=True)
    report.parent.mkdir(parents=True, exist_ok=True)
    write_json(str(data), raw)
    report.write_text(summary + "\n", encoding="utf-8")
    return data, report
