"""findings.json: what is written is read back; what anyone else wrote does no harm."""

from __future__ import annotations

import json

import pytest

from hotloop.cli.report import load_findings
from hotloop.store.findings import FINDINGS_FILE, findings_data, read_findings, write_findings

from .loops import finding


def test_what_was_found_is_read_back(tmp_path):
    found = (finding(), finding("warm-up", 1.1, line=0))
    write_findings(tmp_path, found, 12.5, 10.0)
    assert load_findings(tmp_path) == found
    said = json.loads((tmp_path / FINDINGS_FILE).read_text())
    assert said["version"] == 1 and said["wall_s"] == 12.5 and said["loop_s"] == 10.0
    assert list(said["findings"][0]) == [
        "cause", "severity", "title", "span", "file", "line", "function", "share", "predicted_speedup", "evidence", "action",
        "verify",
    ]  # fmt: skip


def test_nobody_looked_is_not_the_same_as_nothing_found(tmp_path):
    assert load_findings(tmp_path) is None
    write_findings(tmp_path, (), 1.0, 1.0)
    assert load_findings(tmp_path) == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"findings": {}}', "[" * 100_000, "null", '{"findings": 3}'])
def test_a_file_that_is_not_ours_is_as_good_as_none(tmp_path, text):
    (tmp_path / FINDINGS_FILE).write_text(text)
    assert load_findings(tmp_path) is None


def test_a_link_is_not_followed(tmp_path):
    write_findings(tmp_path, (finding(),), 1.0, 1.0)
    other = tmp_path / "other"
    other.mkdir()
    (other / FINDINGS_FILE).symlink_to(tmp_path / FINDINGS_FILE)
    assert load_findings(other) is None


@pytest.mark.parametrize(
    "change",
    [
        {"share": 2.0},
        {"share": "1"},
        {"share": 10**400},
        {"line": -1},
        {"line": True},
        {"title": 5},
        {"evidence": "x"},
        {"evidence": [1]},
        {"predicted_speedup": {"low": 1, "mid": 1e300, "high": 2}},
        {"predicted_speedup": []},
        {"cause": None},
    ],
)
def test_an_entry_that_cannot_be_is_left_out(change):
    data = findings_data("s", (finding(), finding("gc-pressure")), 1.0, 1.0)
    data["findings"][0] |= change
    (left,) = read_findings(data)
    assert left.cause == "gc-pressure"


def test_what_is_read_is_bounded():
    long = finding(title="x" * 100_000, evidence=("e",) * 1000)
    found = read_findings(findings_data("s", [long] * 1000, 1.0, 1.0))
    assert len(found) == 100 and len(found[0].title) == 2000 and len(found[0].evidence) == 50
