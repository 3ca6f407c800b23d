"""`findings.json`: why a run is slow, for other programs to read.

What lives here: the file's shape, which views use too, and writing it. HotLoop itself never reads it: findings are looked for
again whenever a session is read, so that an old session profits from a rule that was improved.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..model.finding import Finding
from .rules import rules_version
from .writer import write_json

FINDINGS_FILE = "findings.json"
VERSION = 1


def write_findings(session: str | os.PathLike[str], findings: Sequence[Finding], wall_s: float, loop_s: float) -> None:
    """Into the session's directory, replacing what is there."""
    content = {
        "version": VERSION,
        "rules": rules_version(),
        "session": str(session),
        "wall_s": wall_s,
        "loop_s": loop_s,
        "findings": [finding_data(f) for f in findings],
    }
    write_json(str(Path(session, FINDINGS_FILE)), content)


def finding_data(finding: Finding) -> dict[str, Any]:
    """One entry."""
    said = {"cause": "", "severity": finding.severity, **asdict(finding), "evidence": list(finding.evidence)}
    return {"predicted_speedup" if name == "gain" else name: value for name, value in said.items()}
