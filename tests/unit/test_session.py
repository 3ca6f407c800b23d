"""`hotloop.load`: the tables people work with say what the report says."""

from __future__ import annotations

import builtins
import json
from dataclasses import asdict

import pytest

import hotloop
from hotloop.errors import HotloopError
from hotloop.present.json import report_data
from hotloop.session import Session, Table

from .loops import finding, make_loop, with_findings


@pytest.fixture
def loop():
    return with_findings(make_loop()[1], [finding(), finding("gc-pressure", 1.3)])


def test_every_table_is_the_one_of_the_report(loop):
    session, said = Session(loop), json.loads(json.dumps(report_data(loop)))
    assert (session.wall_s, session.loop_s, session.coverage) == (said["wall_s"], said["loop_s"], said["coverage"])
    assert session.steps_per_second == said["sps"] and session.counters == said["counters"]
    assert [(row.phase, row.share) for row in session.phases] == [(row["phase"], row["share"]) for row in said["phases"]]
    assert sum(row.total_s for row in session.parts if row.phase == "learn") == pytest.approx(session.phases[0].total_s)
    for name in ("operations", "lines"):
        table = getattr(session, name)
        assert [asdict(row) for row in table] == said[name]
        frame = table.to_pandas()
        assert list(frame.columns) == list(said[name][0]) and len(frame) == len(said[name])
    assert [row.cause for row in session.findings] == [row["cause"] for row in said["findings"]]


def test_what_is_nested_becomes_columns(loop):
    frame = Session(loop).findings.to_pandas()
    assert list(frame["predicted_speedup_mid"]) == [2.4, 1.3]
    assert list(Session(loop).counters.to_pandas().columns) == ["name", "count"]


def test_a_session_says_itself_in_twenty_lines(loop):
    text = repr(Session(loop))
    assert len(text.splitlines()) <= 20
    for word in ("learn", "collect", "env-step-hot", "train.py:11 Grid.step", "to_pandas"):
        assert word in text
    assert len(repr(Table([finding()] * 100)).splitlines()) <= 20
    assert "… 85 more" in repr(Table([finding()] * 100))


def test_nothing_from_a_session_is_markup(loop):
    evil = with_findings(loop, [finding(cause="<script>alert(1)</script>", file="\x1b[2J")])
    for shown in (Session(evil), Session(evil).findings):
        assert "<script>" not in shown._repr_html_() and "\x1b" not in shown._repr_html_() + repr(shown)


def test_a_missing_pandas_is_one_sentence(loop, monkeypatch):
    whole = builtins.__import__

    def without(name, *more):
        if name == "pandas":
            raise ImportError(name)
        return whole(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(HotloopError, match="pip install pandas"):
        Session(loop).lines.to_pandas()


def test_what_is_no_session_is_refused_with_the_next_step(tmp_path):
    with pytest.raises(HotloopError, match="hotloop list"):
        hotloop.load(tmp_path / "none")
