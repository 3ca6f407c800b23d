"""findings.json: an export for other programs, which HotLoop never reads."""

from __future__ import annotations

import json

from hotloop.store.findings import FINDINGS_FILE, write_findings

from .loops import finding


def test_the_file_holds_what_was_found_and_by_which_rules(tmp_path):
    write_findings(tmp_path, (finding(), finding("warm-up", 1.1, line=0)), 12.5, 10.0)
    said = json.loads((tmp_path / FINDINGS_FILE).read_text())
    assert said["version"] == 1 and said["wall_s"] == 12.5 and said["loop_s"] == 10.0
    assert [row["cause"] for row in said["findings"]] == ["env-step-hot", "warm-up"]
    assert said["rules"].startswith("0.")
    assert list(said["findings"][0]) == [
        "cause", "severity", "title", "span", "file", "line", "function", "share", "predicted_speedup", "evidence", "action",
        "verify", "mechanism", "known_by", "changes_learning",
    ]  # fmt: skip
