"""The device and the deep window on the page: their data and its bounds, and what a real browser shows of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotloop.analyse.diagnosis import diagnose
from hotloop.model import device as d
from hotloop.model import shard as m
from hotloop.present.html import html_bytes
from hotloop.present.html.data import Limits, page_data
from hotloop.present.html.page import MAX_BYTES

from ..unit.loops import FILE, MS, make_session
from .conftest import PAYLOADS

STEP, POLICY, BACK, OPTIMIZER = 1, 4, 7, 8  # paths of the session made by hand
MB = 1 << 20


def label(path, host=0, sure=0, most=0, blocked=0, copy=0, waited=0):
    """What was measured of it in half of the run; a process writes it for the whole."""
    return d.DeviceLabel(1, path, 10, *(2 * ms * MS for ms in (host, sure, most, blocked, copy, waited)))


PROCESS = d.DeviceProcess(
    pid=7, name="H200", lifetime_ns=1000 * MS, measured_ns=500 * MS, covered_ns=1000 * MS, busy_ns=200 * MS, cost_ns=5 * MS,
        marks=100, dropped=3,
    unresolved=0, broken="",
    labels=(
        label(STEP, host=300, most=300, blocked=95),
        label(BACK, host=50, sure=100, most=150, waited=90),
        label(OPTIMIZER, host=5, sure=10, most=12, blocked=5, copy=4),
    ),
    pairs=(d.DevicePair((1, STEP), (1, BACK), 180 * MS), d.DevicePair((1, STEP), (0, -1), 4 * MS)),
    transfers=(
        d.Transfer(FILE, 30, "learn", "item", d.TO_HOST, 1000, 400, 0, 1000, 300 * MS),
        d.Transfer(FILE, 11, "Grid.step", "to", d.TO_DEVICE, 200, 200 * MB, 150, 50, 80 * MS),
        d.Transfer(FILE, 40, "main", "synchronize", d.SYNC, 10, 0, 0, 10, 20 * MS),
    ),
    memory=tuple(d.MemoryPoint(i, (100 + 10 * i) * MB, 1000 * MB) for i in range(60)),
    peaks=((1, BACK, 700 * MB), (1, OPTIMIZER, 350 * MB)), peak_allocated=900 * MB, peak_reserved=1200 * MB,
)  # fmt: skip

OPERATORS = d.Operators(
    window_ns=200 * MS, iterations=4, kernel_busy_ns=80 * MS,
    rows=(
        d.Operator(d.CPU_OP, "aten::mm", "learn/backward", 400, 90 * MS),
        d.Operator(d.KERNEL, "void gemm<float>(float*)", "learn/backward", 300, 60 * MS),
        d.Operator(d.COPY, "Memcpy DtoH", "collect/policy", 100, 15 * MS),
        d.Operator(d.KERNEL, "fill", "", 10, 5 * MS),
    ),
)  # fmt: skip


def session_of(*processes, operators=None, session=None):
    return replace(session or make_session(resources={"gpu_mean": 34.0}), devices=processes, operators=operators)


def data_of(session, limits=None):
    return page_data(diagnose(session), limits or Limits())


def write_page(folder, session):
    file = folder / "report.html"
    file.write_bytes(html_bytes(diagnose(session)))
    return file


def cells(browser, table):
    return browser.run(
        "return Array.from(document.querySelectorAll(arguments[0] + ' tbody tr'),"
        " (row) => Array.from(row.cells, (cell) => cell.textContent))",
        table,
    )


def facts(browser, box):
    return dict(zip(browser.texts(f"{box} dt"), browser.texts(f"{box} dd"), strict=True))


# ---- the data ----


def test_a_session_without_a_device_has_neither_part():
    data = data_of(make_session())
    assert data["device"] is None
    assert data["operators"] is None


def test_rows_beyond_the_limit_are_counted_and_their_numbers_add_up():
    lines = tuple(replace(PROCESS.transfers[1], line=i + 1, count=i + 1) for i in range(50))
    ops = tuple(d.Operator(d.KERNEL, f"k{i}", f"label {i}", i + 1, 100 - i) for i in range(50))
    session = session_of(replace(PROCESS, transfers=lines), operators=replace(OPERATORS, rows=ops))
    for limit in (20, 2):
        data = data_of(session, Limits(device=limit))
        for part, at, whole in (
            (data["device"]["lines"], 5, sum(t.count for t in lines)),
            (data["operators"]["rows"], 2, sum(o.calls for o in ops)),
        ):
            left, count, *_ = part["gathered"]
            assert len(part["rows"]) == limit
            assert left == 50 - limit
            assert sum(row[at] for row in part["rows"]) + count == whole
        assert sum(share for _, _, share in data["operators"]["labels"]) == 1000
        assert data["names"][data["operators"]["labels"][-1][0]] == "(39 more)"
    assert len(data["device"]["spans"]["rows"]) == 2
    assert data["device"]["spans"]["gathered"][0] == 1


def test_device_data_without_an_end_still_fits_into_the_page():
    lines = tuple(replace(PROCESS.transfers[0], file="/" + "f" * 490, function="g" * 490, line=i) for i in range(3000))
    ops = tuple(d.Operator(d.KERNEL, f"{i}" + "k" * 1500, f"{i}" + "l" * 1500, 1, 1 << 59) for i in range(4000))
    many = [replace(PROCESS, pid=i, name="N" * 500 + str(i), broken="b" * 500, transfers=lines) for i in range(200)]
    session = session_of(*many, operators=replace(OPERATORS, rows=ops))
    assert len(html_bytes(diagnose(session))) <= MAX_BYTES
    full, least = (len(str(data_of(session, limits)["device"])) for limits in (Limits(), Limits(device=20)))
    assert least < full / 5
    assert full < 400_000


# ---- the page ----


def test_no_section_and_no_link_without_a_device(chromium, tmp_path):
    chromium.open(write_page(tmp_path, make_session()))
    for name in ("device", "operators"):
        assert not chromium.one(f"#{name}").is_displayed()
        assert not chromium.one(f'nav a[href="#{name}"]').is_displayed()
    assert chromium.misdeeds() == []


def test_the_device_section_shows_the_numbers_of_the_report(chromium, tmp_path):
    chromium.open(write_page(tmp_path, session_of(PROCESS)))
    assert chromium.one('nav a[href="#device"]').is_displayed()
    assert not chromium.one("#operators").is_displayed()
    assert chromium.one("#device-names").text == "H200"
    assert facts(chromium, "#device-facts") == {
        "In use": "1.00 s", "Busy": "20.0 % at least", "Idle": "60.0–80.0 % at least – at most",
        "Utilisation": "34.0 % by NVML", "Host blocked": "200 ms",
        "Measured": "50.0 % the rest is scaled", "Own cost": "0.50 %",
    }  # fmt: skip
    assert chromium.one("#device-idle").text == "Idle while the host was in collect/env_step 60.0 %"
    assert cells(chromium, "#device-spans") == [
        ["collect/env_step", "10", "600 ms", "", "600 ms", "190 ms", ""],
        ["learn/backward", "10", "100 ms", "200 ms", "300 ms", "", "180 ms"],
        ["learn/optimizer", "10", "10.0 ms", "20.0 ms", "24.0 ms", "10.0 ms", ""],
    ]
    assert chromium.texts("#device-pairs li") == ["180 ms blocked in collect/env_step is for work queued in learn/backward"]
    assert cells(chromium, "#device-lines") == [
        ["rl/train.py:30 learn", "item", "device to host", "1,000", "1,000", "0", "400 B", "300 ms"],
        ["rl/train.py:11 Grid.step", "to", "host to device", "200", "50", "150", "200.0 MB", "80.0 ms"],
        ["rl/train.py:40 main", "synchronize", "wait", "10", "10", "", "", "20.0 ms"],
    ]
    assert facts(chromium, "#device-memory") == {
        "Peak": "900.0 MB in use", "Reserved": "1.17 GB at most", "Fragmentation": "31.0 % of the reserved not in use",
        "Growth": "200.0 MB in the last third",
    }  # fmt: skip
    assert cells(chromium, "#device-memory") == [["learn/backward", "", "700.0 MB"], ["learn/optimizer", "", "350.0 MB"]]
    assert "3 windows were left out" in chromium.one("#device-notes").text
    assert chromium.misdeeds() == []


def test_the_operators_section_shows_kernels_under_labels(chromium, tmp_path):
    chromium.open(write_page(tmp_path, session_of(operators=OPERATORS)))
    assert not chromium.one("#device").is_displayed()
    assert facts(chromium, "#operators-facts") == {
        "Deep window": "200 ms 4 iterations", "Operators": "90.0 ms on the host", "Kernels": "65.0 ms on the device",
        "Copies": "18.8 % of device time", "Device without work": "60.0 % of the window",
        "Under a label": "93.8 % of device time",
    }  # fmt: skip
    labels = cells(chromium, "#operators-labels")
    assert [(row[0], row[3]) for row in labels] == [
        ("learn/backward", "60.0 ms"),
        ("collect/policy", "15.0 ms"),
        ("(between)", "5.00 ms"),
    ]
    assert sum(round(float(row[2].removesuffix(" %")) * 10) for row in labels) == 1000
    widths = chromium.run("return Array.from(document.querySelectorAll('#operators-labels .track i'), (e) => e.offsetWidth)")
    assert widths[1] == pytest.approx(widths[0] / 4, abs=1.5)
    assert cells(chromium, "#operators-rows") == [
        ["void gemm<float>(float*)", "learn/backward", "300", "60.0 ms", "75.0 %"],
        ["Memcpy DtoH", "collect/policy", "100", "15.0 ms", "18.8 %"],
        ["fill", "(between)", "10", "5.00 ms", "6.3 %"],
    ]
    assert chromium.misdeeds() == []


def test_a_window_on_the_cpu_shows_operators(chromium, tmp_path):
    chromium.open(write_page(tmp_path, session_of(operators=replace(OPERATORS, kernel_busy_ns=0, rows=OPERATORS.rows[:1]))))
    assert set(facts(chromium, "#operators-facts")) == {"Deep window", "Operators", "Under a label"}
    assert chromium.texts("#operators-rows th")[0] == "Operator"
    assert cells(chromium, "#operators-rows") == [["aten::mm", "learn/backward", "400", "90.0 ms", "100.0 %"]]
    assert chromium.misdeeds() == []


def test_the_tables_sort_by_key_and_show_more_when_asked(chromium, tmp_path):
    from selenium.webdriver import Keys

    lines = tuple(replace(PROCESS.transfers[0], line=i, count=100 - i, ns=(i + 1) * MS) for i in range(90))
    chromium.open(write_page(tmp_path, session_of(replace(PROCESS, transfers=lines))))
    first = lambda: cells(chromium, "#device-lines")[0][3]
    assert first() == "11"
    chromium.run("document.querySelectorAll('#device-lines th button')[3].focus()")
    chromium.press(Keys.ENTER)
    assert first() == "100"
    assert chromium.all("#device-lines th")[3].get_attribute("aria-sort") == "descending"
    chromium.press(Keys.ENTER)
    assert first() == "11"
    more = chromium.one("#device-lines .tools button")
    assert more.text == "Show 60 more of 90 rows"
    for shown in (72, 90):
        chromium.run("arguments[0].click()", more)
        assert len(cells(chromium, "#device-lines")) == shown
    assert not more.is_displayed()
    assert chromium.misdeeds() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 600])
def test_nothing_hangs_over_the_edge(chromium, tmp_path, width, dark):
    long = replace(PROCESS, name="a_very_long_device_" * 6, transfers=(replace(PROCESS.transfers[0], function="f" * 200),))
    ops = replace(OPERATORS, rows=(replace(OPERATORS.rows[1], name="void kernel<" * 50, label="l" * 200), *OPERATORS.rows))
    chromium.open(write_page(tmp_path, session_of(long, operators=ops)), width=width, dark=dark)
    outside = chromium.run(
        "return Array.from(document.querySelectorAll('#device *, #operators *')).filter((e) => !e.closest('.scroll'))"
        ".filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => String(e.id || e.className || e.tagName))"
    )
    assert outside == []
    assert chromium.run("return document.documentElement.scrollWidth <= innerWidth")
    assert chromium.misdeeds() == []


def hostile_session():
    """Every payload as a label, a device, a line, a note, a kernel."""
    session = make_session()
    (one,) = session.shards
    payloads = [p[:2000] for p in PAYLOADS]
    labels = (*one.labels, *(m.Label(p, m.USER, 0, 0) for p in payloads))
    paths = (*one.paths, *(m.Path(0, len(one.labels) + i) for i in range(len(payloads))))
    used = range(len(one.paths), len(paths))
    processes = [
        replace(
            PROCESS, pid=i, name=p, broken=p, labels=tuple(label(path, host=9, sure=3, most=5, copy=1) for path in used),
            pairs=(d.DevicePair((1, used[i]), (1, used[i - 1]), 400 * MS),), peaks=tuple((1, path, path * MB) for path in used),
            transfers=(d.Transfer(p, 3, p, p, d.TO_HOST, 1, 1, 1, 1, MS),),
        )
        for i, p in enumerate(payloads)
    ]  # fmt: skip
    ops = tuple(d.Operator(d.KERNEL, p, p, 1, MS) for p in payloads)
    session = replace(session, shards=(replace(one, labels=labels, paths=paths),))
    return session_of(*processes, operators=replace(OPERATORS, rows=ops), session=session)


def test_no_name_of_a_device_a_line_or_a_kernel_becomes_markup(chromium, tmp_path):
    chromium.open(write_page(tmp_path, hostile_session()))
    chromium.run("document.querySelectorAll('#device .tools button, #operators .tools button').forEach((b) => b.click())")
    chromium.run(
        "for (const e of document.querySelectorAll('#device td.label, #operators td.label'))"
        " for (const type of ['pointermove', 'mouseover', 'focus', 'pointerleave'])"
        " e.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: 200, clientY: 200 }))"
    )
    chromium.run("document.querySelectorAll('#device th button, #operators th button').forEach((b) => b.click())")
    chromium.settle()
    for table in ("#device-spans", "#operators-rows"):
        shown = {row[0] for row in cells(chromium, table)}
        for text in (PAYLOADS[0], PAYLOADS[1], PAYLOADS[7], "\\u202egpj.exe", "nul\\x00byte"):
            assert text in shown, (table, text)
    assert PAYLOADS[7] in {row[1] for row in cells(chromium, "#device-lines")}
    assert PAYLOADS[0] in chromium.one("#device-names").text
    assert PAYLOADS[0] in chromium.one("#device-notes").text
    assert chromium.run("return window.pwned") is None
    assert chromium.run("return document.querySelectorAll('script').length") == 2
    assert chromium.all("main :is(script, iframe, img, style, link, base, svg[onload], a[href^=java])") == []
    assert chromium.misdeeds() == []
