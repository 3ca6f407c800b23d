"""Findings, phases and lines in a real browser."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.model.session import Source
from hotloop.present.html import html_bytes

from ..unit.loops import FILE, finding, make_loop, with_findings
from .conftest import PAYLOADS


def write_page(folder, findings, loop=None):
    _, report = loop or make_loop()
    file = folder / "report.html"
    file.write_bytes(html_bytes(with_findings(report, findings)))
    return file


def tenths(text):
    return round(float(text.removesuffix(" %")) * 10)


def test_the_cause_comes_first_with_its_place_gain_and_action(chromium, tmp_path):
    chromium.open(write_page(tmp_path, (finding(), finding("warm-up", 1.1))))
    sections = chromium.run("return Array.from(document.querySelectorAll('section:not([hidden])'), (e) => e.id)")
    assert sections[:5] == ["findings", "phases", "limits", "lines", "sheet"]
    first, second = chromium.all(".finding")
    for word in (
        "critical",
        "env-step-hot",
        "2.40× faster",
        "1.92× to 2.64×",
        "train.py:11",
        "62.0 % of the loop",
        "Vectorise",
    ):
        assert word in first.text
    assert "30 of 70 samples" in first.text and "hotloop ab" in first.text
    assert "note" in second.text and not second.find_element("css selector", "details").get_attribute("open")
    assert chromium.misdeeds() == []


def test_the_verdict_stands_above_the_findings(chromium, tmp_path):
    chromium.open(write_page(tmp_path, (finding(),)))
    tags = chromium.run("return Array.from(document.querySelectorAll('#findings-list > *'), (e) => e.tagName)")
    assert tags == ["P", "ARTICLE"]
    assert chromium.texts(".verdict") == ["about 2.4 × is open (1.9 to 2.6): Vectorise the board."]
    assert chromium.misdeeds() == []


def test_nothing_found_is_said_once(chromium, tmp_path):
    for findings in ((), (finding("warm-up", 1.1),)):
        chromium.open(write_page(tmp_path, findings))
        (verdict,) = chromium.texts(".verdict")
        assert ": nothing stands out: compute-bound in learn" in verdict
        assert chromium.one("#findings-list").text.count("nothing stands out") == 1
    assert chromium.misdeeds() == []


def test_the_shares_of_the_phases_add_up(chromium, tmp_path):
    chromium.open(write_page(tmp_path, ()))
    rows = chromium.run(
        "return Array.from(document.querySelectorAll('.phases tbody tr:not(.outside)'), "
        "(r) => [r.classList.contains('part'), r.cells[0].textContent, r.cells[2].textContent])"
    )
    assert sum(tenths(share) for part, _, share in rows if not part) == 1000
    at = next(i for i, row in enumerate(rows) if row[1] == "learn")
    parts = list(takewhile(lambda row: row[0], rows[at + 1 :]))
    assert [name for _, name, _ in parts] == ["backward", "optimizer", "≈ between calls"]
    assert sum(tenths(share) for _, _, share in parts) == tenths(rows[at][2]) == 540
    outside = chromium.one(".phases .outside").text
    assert "start-up" in outside and "250 ms" in outside
    assert chromium.misdeeds() == []


def test_lines_are_chosen_by_phase(chromium, tmp_path):
    chromium.open(write_page(tmp_path, ()))
    own, others = chromium.all("#lines-tables tbody")
    assert [row.text.splitlines()[0] for row in own.find_elements("css selector", ".spot")] == [
        "train.py:30 learn",
        "train.py:11 Grid.step",
    ]
    assert "loss.backward()" in own.text and "→ Linear.forward (torch/nn/linear.py:134)" in own.text
    assert "train.py:11" in others.text
    learn = next(button for button in chromium.all("#lines-filter button") if button.text == "learn")
    learn.click()
    assert learn.get_attribute("aria-pressed") == "true"
    assert len(own.find_elements("css selector", ".spot")) == 1
    assert others.text == "no line of this phase"
    assert chromium.misdeeds() == []


@pytest.mark.parametrize("width", [420, 1280])
def test_nothing_hangs_over_the_edge(chromium, tmp_path, width):
    long = finding(title="very_long_word_" * 30, function="Deep.Name." * 20, action="x" * 300, verify="y" * 300)
    chromium.open(write_page(tmp_path, (long,)), width=width)
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    chromium.settle()
    assert chromium.misdeeds() == []


def test_no_text_of_a_finding_a_hook_or_a_line_becomes_markup(chromium, tmp_path):
    session, _ = make_loop()
    texts = {11: PAYLOADS[0], 30: PAYLOADS[7]}
    hooks = tuple({"pid": "1", "integration": p[:300], "state": "failed", "detail": p[:300]} for p in PAYLOADS[:12])
    session = replace(session, sources={FILE: Source(text=texts)}, hooks=hooks)
    found = [
        finding(cause=p, title=p, span=p, file=p, function=p, evidence=(p,), action=p, verify=p)
        for p in (x[:2000] for x in PAYLOADS)
    ]
    chromium.open(write_page(tmp_path, found, (session, diagnose(session))))
    chromium.settle()
    assert chromium.run("return window.pwned === undefined")
    assert (
        chromium.run(
            "return document.querySelectorAll('#findings-list script, #lines-tables img, #findings-list iframe').length"
        )
        == 0
    )
    assert PAYLOADS[0] in chromium.one("#lines-tables").text
    assert chromium.misdeeds() == []
