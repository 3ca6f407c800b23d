"""The report without a browser: its structure, its numbers, its bounds."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotloop.analyse.diagnosis import diagnose
from hotloop.model import shard as m
from hotloop.model.sheet import KINDS, PROFILER, SPAN, UNATTRIBUTED, Row, Sheet, round_shares
from hotloop.present.html import html_bytes, report_html
from hotloop.present.html.data import Limits, page_data
from hotloop.present.html.names import Names
from hotloop.present.html.names import show as show_name
from hotloop.present.html.page import MAX_BYTES, SCRIPTS
from hotloop.present.html.sheet import group_small, round_parts, sheet_data
from hotloop.store.reader import read_session

from .conftest import PAYLOADS, record, show


class Outline(HTMLParser):
    """The elements of a page, and the text of its styles and scripts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.ids, self.texts, self.metas, self._open = [], [], [], {}, None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "meta" and "http-equiv" in attributes:
            self.metas[attributes["http-equiv"]] = attributes["content"]
        if tag in ("style", "script"):
            self._open = (tag, attributes.get("type", ""))
            self.texts.append([*self._open, ""])
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset")]

    def handle_endtag(self, tag):
        if tag in ("style", "script"):
            self._open = None

    def handle_data(self, data):
        if self._open:
            self.texts[-1][2] += data


@pytest.fixture(params=["training", "hostile"])
def shown(request):
    return request.getfixturevalue(request.param)


def test_the_page_is_one_style_one_script_and_one_block_of_data(shown):
    outline = Outline(shown.html.decode())
    assert [(tag, kind) for tag, kind, _ in outline.texts] == [("style", ""), ("script", "application/json"), ("script", "")]
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(outline.tags)
    assert len(set(outline.ids)) == len(outline.ids)
    assert shown.html.count(b"</script>") == 2 and shown.html.count(b"</html>") == 1


def test_the_policy_allows_nothing_but_these_very_texts(shown):
    outline = Outline(shown.html.decode())
    policy = dict(part.split(" ", 1) for part in outline.metas["Content-Security-Policy"].split("; "))
    hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() + "'" for *_, t in outline.texts]
    assert policy["default-src"] == "'none'"
    assert policy["style-src"] == hashes[0] and policy["script-src"] == hashes[2]
    assert policy["require-trusted-types-for"] == "'script'"
    assert set(policy) == {
        "default-src", "style-src", "script-src", "base-uri", "form-action", "require-trusted-types-for", "trusted-types",
    }  # fmt: skip


def test_nothing_of_a_session_is_outside_the_data_and_nothing_in_it_is_markup(hostile, training):
    begin, end = hostile.html.index(b'id="data">') + 10, hostile.html.rindex(b"</script>\n<script>")
    block = hostile.html[begin:end]
    assert block.isascii() and not set(b"<>&") & set(block)
    other = training.html.index(b'id="data">') + 10, training.html.rindex(b"</script>\n<script>")
    assert hostile.html[:begin] + hostile.html[end:] == training.html[: other[0]] + training.html[other[1] :]


def test_our_own_script_never_parses_text_as_markup_or_code():
    folder = resources.files("hotloop.present.html") / "assets"
    forbidden = (
        "innerHTML outerHTML insertAdjacentHTML document.write eval( Function( fetch( XMLHttp localStorage sessionStorage"
    )
    template = (folder / "template.html").read_text(encoding="utf-8")
    ids = set(re.findall(r'id="([^"]+)"', template))
    for name in SCRIPTS:
        script = (folder / name).read_text(encoding="utf-8")
        assert not [word for word in forbidden.split() if word in script], name
        assert set(re.findall(r'byId\("([^"]+)"\)', script)) <= ids, name
    assert {file.name for file in folder.iterdir()} == {"template.html", "report.css", "plain.css", *SCRIPTS}


def test_the_same_session_gives_the_same_bytes(training):
    again = diagnose(read_session(training.session.path))
    assert html_bytes(again) == training.html


def test_the_page_does_not_depend_on_the_order_of_hashes(training):
    code = (
        "import sys, hashlib; from hotloop.store.reader import read_session; from hotloop.analyse.diagnosis import diagnose\n"
        "from hotloop.present.html import html_bytes\n"
        "print(hashlib.sha256(html_bytes(diagnose(read_session(sys.argv[1])))).hexdigest())"
    )
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code, str(training.session.path)], capture_output=True, text=True, check=True, env=env
        )
        assert done.stdout.strip() == hashlib.sha256(training.html).hexdigest()


def test_the_numbers_are_those_of_the_report(training):
    data, report = training.data, training.report
    assert data["session"]["wall_ns"] == report.wall_ns
    assert data["session"]["iterations"] == 30
    assert data["quality"]["recorded"] == report.quality.recorded
    wanted = {o.name: o for o in report.operations if o.kind in (m.USER, m.WAIT) and o.calls}
    columns = data["operations"]
    assert len(columns["name"]) == len(wanted) and columns["gathered"] is None
    for i, number in enumerate(columns["name"]):
        o = wanted[data["names"][number]]
        found = [columns[key][i] for key in ("calls", "busy_ns", "self_ns", "max_ns", "union_ns")]
        assert found == [o.calls, o.busy_ns, o.self_ns, o.max_ns, o.union_ns]
        assert abs(columns["p95_ns"][i] - o.percentile_ns(0.95)) <= 0.5
    timeline = data["timeline"]
    assert timeline["there"] == timeline["drawn"] == len(training.session.events) == len(timeline["dur"])
    assert sum(timeline["dur"]) == int(training.session.events.dur_ns.sum())
    assert len(data["lanes"]["rows"]) == len(report.ledger.balances)
    for (_, _, _, parts, shares), balance in zip(data["lanes"]["rows"], report.ledger.balances, strict=True):
        assert sum(parts) == balance.lifetime_ns and sum(shares) == 1000


def test_rows_of_the_sheet_are_the_sums_of_the_rows_below_them(shown):
    sheet = shown.data["sheet"]
    for key in ("ns", "share"):
        sums = defaultdict(int)
        for parent, value in zip(sheet["parent"], sheet[key], strict=True):
            sums[parent] += value
        assert sums.pop(-1) == {"ns": shown.report.wall_ns, "share": 1000}[key]
        assert all(sheet[key][parent] == value for parent, value in sums.items())
    totals = shown.data["totals"]
    assert sum(t["ns"] for t in totals) == shown.report.wall_ns and sum(t["share"] for t in totals) == 1000
    assert [t["ns"] for t in totals] == [shown.report.sheet.total_ns(kind) for kind in KINDS]
    assert sum(share for _, _, share in shown.data["owners"]) == 1000


@st.composite
def sheets(draw):
    """A sheet of random leaves below random parents."""
    rows = [Row(-1, 0, "wall", SPAN, False, 0, 0, 0, -1)]
    for i in range(draw(st.integers(1, 60))):
        parent = draw(st.integers(0, len(rows) - 1))
        kind = draw(st.sampled_from(KINDS))
        size = draw(st.one_of(st.integers(1, 50), st.integers(1, 10**12)))
        rows.append(Row(parent, rows[parent].depth + 1, f"r{i}", kind, draw(st.booleans()), size, i, 2 * i, i))
    parents = {row.parent for row in rows}
    sizes = [0 if i in parents else row.ns for i, row in enumerate(rows)]
    for i in range(len(rows) - 1, 0, -1):
        sizes[rows[i].parent] += sizes[i]
    return Sheet(tuple(replace(r, ns=n, leaf=i not in parents) for i, (r, n) in enumerate(zip(rows, sizes, strict=True))))


@given(sheets(), st.integers(1, 80))
def test_any_sheet_still_adds_up_after_gathering_grouping_and_rounding(sheet, limit):
    data = sheet_data(sheet, Names(), limit)
    shares, sums = data["share"], defaultdict(int)
    for i, parent in enumerate(data["parent"]):
        assert parent < i
        sums[parent, "ns"] += data["ns"][i]
        sums[parent, "share"] += shares[i]
    assert sums[-1, "ns"] == sheet.wall_ns and sums[-1, "share"] == 1000
    for i in set(data["parent"]) - {-1}:
        assert sums[i, "ns"] == data["ns"][i] and sums[i, "share"] == shares[i]
        assert abs(shares[i] - data["ns"][i] * 1000 / sheet.wall_ns) < 64


def test_a_thousand_tiny_rows_have_the_right_share_together():
    """Rounded one by one, their parts of a percent would end up at the large rows."""
    tiny = [Row(0, 1, f"t{i}", SPAN, False, 40, 1, 40, i) for i in range(1000)]
    rest = [Row(0, 1, "big", SPAN, False, 600_000, 1, 0, 5), Row(0, 1, "free", UNATTRIBUTED, False, 360_000, 0, 0, -1)]
    sheet = Sheet((Row(-1, 0, "wall", SPAN, False, 1_000_000, 0, 0, -1, leaf=False), *rest, *tiny))
    grouped, groups = group_small(sheet)
    shown = {row.name: share for row, share in zip(grouped.rows, round_shares(grouped), strict=True)}
    assert shown["big"] == 600 and shown["free"] == 360 and shown["(1,000 smaller rows)"] == 40
    assert [grouped.rows[i].name for i in groups] == ["(1,000 smaller rows)"]
    assert [row.name for row in grouped.rows if row.parent == 0] == ["big", "free", "(1,000 smaller rows)"]


@given(st.lists(st.integers(0, 10**18), max_size=12))
def test_rounded_parts_add_up_and_are_never_off_by_a_step(parts):
    shares = round_parts(parts)
    assert sum(shares) == (1000 if sum(parts) else 0)
    for part, share in zip(parts, shares, strict=True):
        assert abs(share * sum(parts) - part * 1000) < max(1, sum(parts))


@given(st.text(st.characters(), max_size=3000), st.integers(20, 2000))
def test_no_name_hides_anything_or_exceeds_its_length(name, limit):
    shown = show_name(name, limit)
    assert shown.isprintable() and len(shown) <= limit + 2
    shown.encode()  # no half characters
    if name.isprintable() and name.strip() and len(name) <= limit:
        assert shown == name


def test_hostile_names_keep_their_text():
    assert show_name("\u202egpj.exe") == "\\u202egpj.exe"
    assert show_name("\x1b[31m\x00") == "\\x1b[31m\\x00"
    assert show_name("\ud800") == "\\ud800"
    assert show_name(PAYLOADS[0]) == PAYLOADS[0]
    assert len(show_name("x" * 10**6)) == 2000


def test_what_is_not_shown_one_by_one_is_counted(training):
    limits = Limits(sheet=5, operations=3, lanes=2, notes=1, name_chars=20, names_bytes=100)
    data = page_data(training.report, limits)
    operations = [o for o in training.report.operations if o.kind in (m.USER, m.WAIT) and o.calls]
    columns, gathered = data["operations"], data["operations"]["gathered"]
    assert len(columns["name"]) == 3 and gathered["rows"] == len(operations) - 3
    assert sum(columns["busy_ns"]) + gathered["busy_ns"] == sum(o.busy_ns for o in operations)
    assert sum(columns["calls"]) + gathered["calls"] == sum(o.calls for o in operations)
    lanes, (count, sums, shares) = data["lanes"]["rows"], data["lanes"]["gathered"]
    assert len(lanes) == 2 and count == len(training.report.ledger.balances) - 2
    assert sum(sums) + sum(sum(row[3]) for row in lanes) == sum(b.lifetime_ns for b in training.report.ledger.balances)
    assert sum(shares) == 1000
    assert data["sheet"]["there"] == len(training.report.sheet.rows) > data["sheet"]["kept"]


def test_ten_thousand_labels_with_long_names_stay_within_the_size(tmp_path):
    session = record(
        tmp_path,
        """
        import hotloop
        from hotloop import profile, step
        hotloop.start(out="runs", budget=96 << 20)
        for _ in range(3):
            for i in range(10_000):
                with profile(f"{i:05d}/" + "n" * 300): pass
            step()
        hotloop.stop()
        """,
    )
    shown = show(session, tmp_path)
    assert len(shown.html) <= MAX_BYTES
    data = shown.data
    rows = data["operations"]["gathered"]["rows"] if data["operations"]["gathered"] else 0
    assert len(data["operations"]["name"]) + rows >= 10_000
    assert len(data["timeline"]["dur"]) <= 20_000
    names = {data["names"][i] for i in data["operations"]["name"]}
    assert len(names) == len(data["operations"]["name"])  # shortened, but still told apart


def test_a_killed_process_is_said_to_have_died_and_its_open_spans_are_there(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import hotloop, os, signal\nfrom hotloop import profile\nhotloop.start(out='runs')\n"
        "with profile('done'): sum(range(9999))\n"
        "with profile('stuck'):\n    sum(range(99999))\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    (path,) = (tmp_path / "runs").iterdir()
    data = show(read_session(path), tmp_path).data
    assert data["quality"]["died"] == 1 and data["quality"]["open"] == 1
    assert any("died; what it recorded is complete" in note for note in data["notes"])
    assert data["history"] is None
    timeline = data["timeline"]
    (at,) = (i for i, n in timeline["spans"] if n == 0)
    assert data["names"][timeline["labels"][timeline["label"][at]][0]] == "stuck"


def test_a_session_before_its_first_span_has_a_page_too(training):
    report = replace(training.report, sheet=None, owners={}, operations=(), sps=None)
    html = report_html(report)
    assert '"sheet":null' in html and '"totals":null' in html and '"owners":null' in html


def test_impossible_numbers_do_not_reach_the_page(training):
    quality = replace(training.report.quality, own_cost_ns=float("nan"), own_cost_error_ns=float("inf"))
    first, *others = training.session.shards
    shards = (replace(first, start_unix_ns=1 << 80), *others)
    session = replace(training.session, shards=shards, meta={"command": 7, "host": [1]})
    report = replace(training.report, session=session, sps=float("nan"), quality=quality)
    html = report_html(report)
    assert "NaN" not in html.split('id="data">')[1].split("</script>")[0]
    assert '"start_ms":null' in html and '"own_cost_ns":null' in html


def test_profiler_rows_keep_their_kind(training):
    sheet = training.data["sheet"]
    names = [training.data["names"][i] for i in sheet["name"]]
    assert sheet["kind"][names.index("(profiler)")] == KINDS.index(PROFILER)
