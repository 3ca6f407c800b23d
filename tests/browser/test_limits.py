"""Limits in a real browser: mechanisms, headroom, curves, optimizers."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from selenium.webdriver.common.keys import Keys

from hotloop.analyse.diagnosis import diagnose
from hotloop.analyse.limits import Limit, Limits
from hotloop.model import phase as ph
from hotloop.model.mechanism import MECHANISMS
from hotloop.model.probe import OptimizerCost, Probes
from hotloop.present.html import html_bytes

from ..unit.loops import MS, PROBES, curve, make_session, with_limits
from .conftest import PAYLOADS

EVERY = {name: (i + 1) * 15 * MS for i, name in enumerate(MECHANISMS)}
LIMITS = Limits(
    (Limit(ph.COLLECT, 420 * MS, EVERY, 210 * MS, 30 * MS), Limit(ph.LEARN, 540 * MS, {"computing": 540 * MS}, 0, 0)),
    1.08,
    3.26,
    1.2,
    {**EVERY, "computing": EVERY["computing"] + 540 * MS},
)


def write_page(folder, probes=PROBES, limits=LIMITS):
    report = diagnose(replace(make_session(), probes=probes))
    file = folder / "report.html"
    file.write_bytes(html_bytes(with_limits(report, limits) if limits else report))
    return file


def shares(texts):
    """Tenths of a percent."""
    return [round(float(number) * 10) for text in texts for number in re.findall(r"([\d.]+) %", text)]


def test_the_mechanisms_of_each_phase_add_up_to_all_of_it(chromium, tmp_path):
    for limits in (LIMITS, None):
        chromium.open(write_page(tmp_path, limits=limits))
        bars = chromium.all("#limits .stack")
        assert len(bars) == (2 if limits else 3)
        for bar in bars:
            labels = [x.get_attribute("textContent") for x in bar.find_elements("css selector", ".patch")]
            assert sum(shares(labels)) == sum(shares([bar.get_attribute("aria-label")])) == 1000
            widths = chromium.run("return Array.from(arguments[0].children, (x) => x.getBoundingClientRect().width)", bar)
            assert sum(widths) == pytest.approx(bar.rect["width"], abs=1)
        assert sum(shares(chromium.texts("#limits .legend"))) == 1000
    assert chromium.misdeeds() == []


@pytest.mark.parametrize("dark", [False, True])
def test_each_mechanism_has_a_colour_of_its_own_and_waiting_the_one_it_has_elsewhere(chromium, tmp_path, dark):
    chromium.open(write_page(tmp_path), dark=dark)
    look = "return Array.from(document.querySelectorAll(arguments[0]), (x) => getComputedStyle(x)[arguments[1]])"
    bar, legend = "#limits .stack:has(.m0) > div", "#limits .legend .sample"
    colours = chromium.run(look, bar, "backgroundColor")
    assert len(set(colours)) == len(MECHANISMS)
    assert colours == chromium.run(look, legend, "backgroundColor")
    phases = set(chromium.run(look, "#phases .sample, #phases .stack > div", "backgroundColor"))
    assert not phases & set(colours)
    waiting = chromium.run(look, "#totals .sample.k1", "backgroundColor")
    assert [colours[MECHANISMS.index("waiting")]] == waiting


def test_time_limit_and_headroom_stand_in_a_table(chromium, tmp_path):
    chromium.open(write_page(tmp_path))
    assert chromium.texts("table.limits thead th") == ["Phase", "Time", "Limit", "Headroom"]
    rows = chromium.run(
        "return Array.from(document.querySelectorAll('table.limits .numbers'),"
        " (row) => Array.from(row.cells, (cell) => cell.textContent))"
    )
    assert rows == [["collect", "420 ms", "210 ms", "2.00 ×"], ["learn", "540 ms", "0 s", "over 100 ×"]]
    said = chromium.one("#limits-said").text
    assert "1.08 × with learning unchanged" in said
    assert "3.26 × with more samples per call" in said and "may change what is learnt" in said
    assert chromium.one("nav a[href='#limits']").is_displayed()
    assert chromium.misdeeds() == []


def test_a_bar_tells_its_phase_to_the_keyboard(chromium, tmp_path):
    chromium.open(write_page(tmp_path))
    chromium.run(
        "const [bar] = arguments; bar.scrollIntoView({ block: 'center' }); bar.focus()", chromium.one("#limits .stack")
    )
    chromium.settle()
    chromium.press(Keys.TAB)
    tip = chromium.one("#tip").text
    assert tip.startswith("learn, 540 ms") and "computing 100.0 %" in tip
    assert chromium.misdeeds() == []


def test_curves_have_their_points_their_spread_and_where_the_run_is(chromium, tmp_path):
    chromium.open(write_page(tmp_path))
    charts = chromium.all(".curves .chart")
    assert len(charts) == len(PROBES.curves)
    for chart, made in zip(charts, PROBES.curves, strict=True):
        count = len(made.points)
        assert len(chart.find_elements("css selector", ".spread")) == count
        assert len(chart.find_elements("css selector", "svg > .dot")) == count
        (now,) = chart.find_elements("css selector", ".now")
        xs = [float(dot.get_attribute("cx")) for dot in chart.find_elements("css selector", "svg > .dot")]
        steps = [b - a for a, b in pairwise(xs)]
        assert steps == pytest.approx([steps[0]] * len(steps), abs=0.01)  # a logarithmic axis
        assert float(now.get_attribute("cx")) == xs[0]
        ys = [float(dot.get_attribute("cy")) for dot in chart.find_elements("css selector", "svg > .dot")]
        assert ys == sorted(ys, reverse=True)
    assert "226 µs for 1 row; 8 rows cost 234 µs" in charts[0].text
    assert "the run: 1 row, 226 µs" in charts[0].text
    assert "8 rows 234 µs" in charts[0].find_element("css selector", "svg").get_attribute("aria-label")
    assert "learn, Net.evaluate" in charts[1].text
    assert "83.0 µs with fused=True" in chromium.one("#limits-measured").text
    assert chromium.misdeeds() == []


def test_arrow_keys_move_over_the_points(chromium, tmp_path):
    chromium.open(write_page(tmp_path))
    svg = chromium.one(".curves svg")
    chromium.run("arguments[0].scrollIntoView({ block: 'center' }); arguments[0].focus()", svg)
    chromium.settle()
    chromium.press(Keys.ARROW_RIGHT)
    assert chromium.one("#tip").text.splitlines() == ["1 row, as in the run", "226 µs a call, ± 2.00 µs", "226 µs a row"]
    chromium.press(Keys.END)
    assert chromium.one("#tip").text.startswith("8 rows")
    chromium.hover(svg)
    assert chromium.one("#tip").is_displayed()
    chromium.run("arguments[0].blur()", svg)
    assert not chromium.one("#tip").is_displayed()
    assert chromium.misdeeds() == []


def test_without_phases_or_probes_nothing_is_drawn(chromium, tmp_path, training):
    chromium.open(training.file)
    assert not chromium.one("#limits").is_displayed()
    assert not chromium.one("nav a[href='#limits']").is_displayed()
    chromium.open(write_page(tmp_path, Probes()))
    assert chromium.one("#limits").is_displayed()
    assert chromium.one("#limits-measured").get_attribute("textContent") == ""
    assert chromium.misdeeds() == []


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_hangs_over_the_edge(chromium, tmp_path, width):
    many = tuple(2 << i for i in range(40))
    long = Probes((curve("VeryLongNameOfANetwork" * 8, costs=many), curve(costs=(1,))), PROBES.optimizers)
    chromium.open(write_page(tmp_path, long), width=width)
    chromium.settle()
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    labels = chromium.run(
        "const box = document.querySelector('#limits').getBoundingClientRect();"
        "return Array.from(document.querySelectorAll('.curves text'), (x) => x.getBoundingClientRect())"
        ".map((x) => x.left >= box.left && x.right <= box.right)"
    )
    assert all(labels)
    assert chromium.misdeeds() == []


def test_hostile_names_of_networks_and_optimizers_are_text(chromium, tmp_path):
    names = [payload[:200] for payload in PAYLOADS[:12]]
    probes = Probes(
        tuple(curve(name, method=name) for name in names), tuple(OptimizerCost(x, 3, 9, 1e3, {x: 9e2}) for x in names)
    )
    chromium.open(write_page(tmp_path, probes))
    chromium.settle()
    assert chromium.texts(".curves .name") == [f"{name}.{name}" for name in names]
    said = chromium.texts("#limits-measured li")
    assert len(said) == len(names) and all(text.startswith(f"{name}: a step") for text, name in zip(said, names, strict=True))
    assert chromium.run("return window.pwned === undefined")
    assert (
        chromium.run("return document.querySelectorAll('#limits :is(script, iframe, img, style, base, meta, a)').length") == 0
    )
    assert chromium.misdeeds() == []
