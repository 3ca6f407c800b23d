"""`findings.json`: why a run is slow, as it was found at its end.

What lives here: the file's shape, writing it and reading it back; views use the shape too, so nothing here opens a session.
Invariant: what `read_findings` answers is plain and bounded, whoever wrote the file; an entry that is not one is left out.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..model.finding import Finding, Gain
from .writer import write_json

FINDINGS_FILE = "findings.json"
VERSION = 1
MOST_BYTES = 4 << 20
_MOST, _MOST_CHARS, _MOST_EVIDENCE = 100, 2000, 50
_MOST_GAIN = 1e6


def write_findings(session: str | os.PathLike[str], findings: Sequence[Finding], wall_s: float, loop_s: float) -> None:
    """Into the session's directory, replacing what is there."""
    write_json(str(Path(session, FINDINGS_FILE)), findings_data(str(session), findings, wall_s, loop_s))


def findings_data(session: str, findings: Sequence[Finding], wall_s: float, loop_s: float) -> dict[str, Any]:
    """The file's content."""
    return {
        "version": VERSION,
        "session": session,
        "wall_s": wall_s,
        "loop_s": loop_s,
        "findings": [finding_data(f) for f in findings],
    }


def finding_data(finding: Finding) -> dict[str, Any]:
    """One entry."""
    return {
        "cause": finding.cause,
        "severity": finding.severity,
        "title": finding.title,
        "span": finding.span,
        "file": finding.file,
        "line": finding.line,
        "function": finding.function,
        "share": finding.share,
        "predicted_speedup": {"low": finding.gain.low, "mid": finding.gain.mid, "high": finding.gain.high},
        "evidence": list(finding.evidence),
        "action": finding.action,
        "verify": finding.verify,
    }


def read_findings(said: Any) -> tuple[Finding, ...] | None:
    """From the file's JSON, whoever wrote it; None where it is no such file."""
    rows = said.get("findings") if isinstance(said, dict) else None
    if not isinstance(rows, list):
        return None
    found = (_read_finding(row) for row in rows[:_MOST])
    return tuple(finding for finding in found if finding is not None)


def _read_finding(row: Any) -> Finding | None:
    try:
        gain = row["predicted_speedup"]
        low, mid, high = (_number(gain[key], _MOST_GAIN) for key in ("low", "mid", "high"))
        evidence = row["evidence"]
        if not isinstance(evidence, list):
            return None
        return Finding(
            cause=_text(row["cause"]), title=_text(row["title"]), span=_text(row["span"]), file=_text(row["file"]),
            line=int(_number(row["line"], 1 << 31)), function=_text(row["function"]), share=_number(row["share"], 1.0),
            gain=Gain(low, mid, high), evidence=tuple(_text(x) for x in evidence[:_MOST_EVIDENCE]),
            action=_text(row["action"]), verify=_text(row["verify"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value[:_MOST_CHARS]


def _number(value: Any, most: float) -> float:
    if type(value) not in (int, float) or not 0 <= value <= most:  # false for NaN too
        raise ValueError("not a number that can be")
    return float(value)
