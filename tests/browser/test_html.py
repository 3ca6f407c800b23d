"""The report in a real browser: what it shows, how it answers, and what it must never do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hotloop.model.session import Events, SessionData
from hotloop.present.html import html_bytes

from .conftest import PAYLOADS, record, show

TREE = "#tree tbody tr"


def tenths(text):
    return int(re.sub(r"\D", "", text))


def test_the_watch_notices_what_it_watches_for(chromium, tmp_path):
    """A page that does everything wrong; without this the tests below could pass by blindness."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<script>window.pwned=1;alert(1);missing();</script><img src='http://127.0.0.1:9/x.png'>"
        "<script>performance.mark('hotloop-ready')</script>"
    )
    chromium.open(page)
    chromium.wait("window.seen.length >= 2")
    said = " ".join(chromium.misdeeds())
    assert "alert" in said and "missing" in said and "127.0.0.1:9/x.png" in said


def test_the_header_says_what_the_session_was(opened, training):
    browser = opened()
    assert browser.one("h1").text == "ppo"
    cards = dict(zip(browser.texts("#cards dt"), browser.texts("#cards dd"), strict=True))
    assert cards["Iterations"] == "30"
    assert cards["env steps"].startswith("240")
    assert cards["Processes"].startswith("3 ")
    assert cards["Coverage"].startswith(f"{training.report.numbers.coverage * 100:.1f} %")
    assert "losses none" in browser.one("#quality").text and "no process died" in browser.one("#quality").text


def test_the_shares_that_are_shown_add_up_in_every_row_of_the_tree(opened):
    browser = opened()
    browser.one("#sheet-open").click()
    rows = browser.run(
        f"return Array.from(document.querySelectorAll('{TREE}'), "
        "(r) => [Number(r.getAttribute('aria-level')), r.cells[2].textContent, r.hasAttribute('aria-expanded')])"
    )
    assert len(rows) > 15 and rows[0][:2] == [1, "100.0 %"]
    for i, (level, share, has_children) in enumerate(rows):
        below = []
        for other_level, other, _ in rows[i + 1 :]:
            if other_level <= level:
                break
            if other_level == level + 1:
                below.append(tenths(other))
        assert bool(below) == has_children
        if below:
            assert sum(below) == tenths(share)


def test_the_stacked_bar_and_the_owners_add_up_to_a_hundred_percent(opened):
    browser = opened()
    for legend in ("#totals .legend > span", "#owners .legend > span"):
        shares = [tenths(re.search(r"\d+\.\d %", text)[0]) for text in browser.texts(legend)]
        assert sum(shares) == 1000
    width = browser.run("return document.querySelector('#totals .stack').clientWidth")
    parts = browser.run("return Array.from(document.querySelector('#totals .stack').children, (e) => e.offsetWidth)")
    assert abs(sum(parts) - width) <= len(parts)


def test_kinds_differ_by_more_than_their_colour(opened):
    browser = opened()
    looks = browser.run(
        "return [0, 1, 2, 3].map((k) => getComputedStyle(document.querySelector(`#totals .legend .k${k}`)))"
        ".map((s) => [s.backgroundColor, s.backgroundImage])"
    )
    assert len({colour for colour, _ in looks}) == 4
    assert len({image for _, image in looks}) == 4
    hatched = browser.run("return getComputedStyle(document.querySelector('#icicle-legend .inferred')).backgroundImage")
    assert hatched not in {image for _, image in looks}


def test_rows_open_and_close_by_click_and_by_key(opened):
    from selenium.webdriver import Keys

    browser = opened()
    browser.one("#sheet-close").click()
    names = browser.texts(f"{TREE} td:first-child")
    top = [name.strip("▸▾") for name in names]
    assert top[0] == "wall" and "collect" in top
    row = next(r for r in browser.all(TREE) if r.text.startswith("▸ collect") or r.text.startswith("▸collect"))
    row.click()
    assert any("env_step" in name for name in browser.texts(f"{TREE} td:first-child"))
    browser.press(Keys.ARROW_LEFT)
    assert not any("env_step" in name for name in browser.texts(f"{TREE} td:first-child"))
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert any("env_step" in name for name in browser.texts(f"{TREE} td:first-child"))
    assert browser.run("return document.activeElement.getAttribute('aria-level')") == "3"


def test_the_icicle_zooms_by_click_and_finds_its_way_back(opened):
    browser = opened()
    cell = next(c for c in browser.all(".cell[data-row]") if c.text == "train")
    cell.click()
    assert browser.texts("#crumbs button") == ["wall", "train"]
    wide = browser.run("return Array.from(document.querySelectorAll('.cell'), (c) => [c.textContent, c.offsetWidth])")
    full = browser.run("return document.querySelector('#icicle-cells').clientWidth")
    assert [name for name, width in wide if width >= full - 1][:2] == ["wall", "train"]
    assert "collect" not in [name for name, _ in wide]
    browser.all("#crumbs button")[0].click()
    assert "collect" in browser.texts(".cell")


def test_the_icicle_is_reached_and_read_by_keyboard(opened):
    from selenium.webdriver import Keys

    browser = opened()
    browser.run("document.querySelector('#crumbs button').focus()")
    browser.press(Keys.TAB)
    assert browser.run("return document.activeElement.textContent") == "wall"
    browser.press(Keys.ARROW_DOWN)
    first = browser.run("return document.activeElement.getAttribute('aria-label')")
    assert "% of wall" in first
    browser.press(Keys.ARROW_RIGHT)
    assert browser.run("return document.activeElement.getAttribute('aria-label')") != first
    browser.press(Keys.ENTER)
    assert len(browser.texts("#crumbs button")) == 2
    browser.press(Keys.ESCAPE)
    assert browser.texts("#crumbs button") == ["wall"]


def test_the_search_says_how_much_matches_and_counts_nothing_twice(opened, training):
    browser = opened()
    browser.one("#icicle-search").send_keys("COLLECT")
    collect = next(r for r in training.report.sheet.rows if r.name == "collect")
    share = round(collect.ns / training.report.wall_ns * 1000)
    assert browser.one("#icicle-said").text.startswith(f"1 row match: {share // 10}.{share % 10} % of wall")
    assert browser.texts(".cell.hit") == ["collect"]
    browser.one("#icicle-search").clear()
    browser.one("#icicle-search").send_keys("l")  # wall holds everything else that matches
    assert ": 100.0 % of wall" in browser.one("#icicle-said").text
    browser.one("#icicle-search").send_keys("nothing like it")
    assert browser.one("#icicle-said").text == "nothing matches"


def picture(browser):
    browser.settle()
    return browser.run("return document.querySelector('#timeline-canvas').toDataURL()")


def test_the_timeline_zooms_by_wheel_button_and_key_and_comes_back(opened):
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser = opened()
    canvas = browser.one("#timeline-canvas")
    browser.run("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    whole = picture(browser)
    canvas.click()
    ActionChains(browser.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, -400).perform()
    nearer = picture(browser)
    assert nearer != whole
    ActionChains(browser.driver).click_and_hold(canvas).move_by_offset(120, 0).release().perform()
    assert picture(browser) != nearer
    browser.press("0")
    assert picture(browser) == whole
    browser.press("+")
    assert picture(browser) != whole
    browser.one("#timeline-all").click()
    assert picture(browser) == whole
    chain = ActionChains(browser.driver).key_down(Keys.SHIFT).move_to_element_with_offset(canvas, -100, 0)
    chain.click_and_hold().move_by_offset(150, 0).release().key_up(Keys.SHIFT).perform()
    assert picture(browser) != whole


def test_the_wheel_scrolls_the_page_until_the_timeline_was_clicked(opened):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin

    browser = opened()
    canvas = browser.one("#timeline-canvas")
    browser.run("arguments[0].scrollIntoView({ block: 'center' })", canvas)
    whole, at = picture(browser), browser.run("return scrollY")
    ActionChains(browser.driver).scroll_from_origin(ScrollOrigin.from_element(canvas), 0, 1200).perform()
    browser.wait(f"scrollY > {at}")
    assert picture(browser) == whole


def test_a_block_of_the_timeline_says_its_name_duration_and_iteration(opened, training):
    browser = opened()
    canvas = browser.one("#timeline-canvas")
    height = canvas.size["height"]
    for dx in range(-300, 320, 20):  # the first row of the main track
        browser.hover(canvas, dx, 38 + 18 + 8 - height // 2)
        if browser.one("#tip").is_displayed():
            break
    name, *lines = browser.one("#tip").text.split("\n")
    assert name in {"collect", "train"}
    assert re.fullmatch(r"[\d.]+ (ns|µs|ms|s)", lines[0])
    assert re.search(r"at .*, iteration \d+", lines[1])
    assert lines[2] == "MainThread"
    said = browser.one("#timeline-said").text
    assert said == f"All {training.report.quality.recorded:,} recorded spans and waits are drawn."


def test_every_lane_of_the_timeline_is_named_and_iterations_are_numbered(opened):
    texts = opened().run(
        """
        const said = [];
        const real = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = (text) => said.push(text);
        document.getElementById("timeline-all").click();
        return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => {
          CanvasRenderingContext2D.prototype.fillText = real;
          done(said);
        })));
        """
    )
    assert "MainThread" in texts and sum("Process" in text and "MainThread" in text for text in texts) == 2
    assert "#0" in texts and any(re.fullmatch(r"#\d\d", text) for text in texts)


def test_the_series_answer_to_hover_and_keys(opened):
    from selenium.webdriver import Keys

    browser = opened()
    charts = browser.all("#charts svg")
    assert len(charts) == 3
    browser.hover(charts[1])
    name, *lines = browser.one("#tip").text.split("\n")
    assert re.fullmatch(r"iteration \d+", name)
    assert any(line.startswith("SPS ") for line in lines) and any(line.endswith("per iteration") for line in lines)
    assert any(line.startswith("backward: ") for line in lines)
    browser.run("arguments[0].focus()", charts[0])
    browser.press(Keys.HOME)
    assert browser.one("#tip").text.startswith("iteration 0\n")
    browser.press(Keys.ARROW_RIGHT)
    assert browser.one("#tip").text.startswith("iteration 1\n")
    words = browser.texts("#series-words li")
    assert words[0].startswith("Warm-up: ") and words[1].startswith("Time per iteration: ")


def test_operations_sort_by_every_column_both_ways(opened, training):
    browser = opened()
    browser.one("#operations-waits").click()
    o = training.data["operations"]
    n = len(o["name"])
    names = [training.data["names"][i] for i in o["name"]]
    memory, gpu = {row[0]: row[1] for row in o["memory"]}, {row[0]: row[1] for row in o["gpu"]}
    files = [o["files"][i] for i in o["file"]]
    keys = {
        "Operation": names,
        "Site": [f"{'/'.join(f.split('/')[-2:])}:{line}" if f else "" for f, line in zip(files, o["line"], strict=True)],
        "Calls": o["calls"], "Busy": o["busy_ns"], "Self": o["self_ns"],
        "p50": o["p50_ns"], "p95": o["p95_ns"], "Max": o["max_ns"],
        "Average": [b / c if c else 0 for b, c in zip(o["busy_ns"], o["calls"], strict=True)],
        "Wall %": [min(1000, int(u / training.report.wall_ns * 1000 + 0.5)) for u in o["union_ns"]], "Union": o["union_ns"],
        "Concurrency": [b / u if u else 0 for b, u in zip(o["busy_ns"], o["union_ns"], strict=True)],
        "Memory": [memory.get(i, -1) for i in range(n)], "GPU": [gpu.get(i, -1) for i in range(n)],
    }  # fmt: skip
    heads = [text.strip("▾▴ ") for text in browser.texts("#operations-table th")]
    assert set(heads) >= set(keys) - {"GPU"}
    for at, head in enumerate(heads):
        for _ in range(2):
            browser.all("#operations-table th button")[at].click()
            down = browser.all("#operations-table th")[at].get_attribute("aria-sort") == "descending"
            values = [(keys[head][i], names[i]) for i in range(n)]
            values.sort(key=lambda v: v[1])
            values.sort(key=lambda v: v[0], reverse=down)
            assert browser.texts("#operations-table tbody td:first-child") == [name for _, name in values], (head, down)


def test_the_filter_finds_by_name_and_by_file(opened):
    browser = opened()
    browser.one("#operations-filter").send_keys("BACK")
    assert browser.texts("#operations-table tbody td:first-child") == ["backward"]
    assert "1 operation matches of" in browser.one("#operations-said").text
    browser.one("#operations-filter").clear()
    browser.one("#operations-filter").send_keys("train.py")
    assert "physics" in browser.texts("#operations-table tbody td:first-child")
    browser.one("#operations-filter").send_keys("zzz")
    assert browser.texts("#operations-table tbody td:first-child") == []


def test_lanes_add_up_and_the_slowest_iterations_open(opened):
    browser = opened()
    rows = browser.run(
        "return Array.from(document.querySelectorAll('#lanes-table tbody tr'),"
        " (row) => Array.from(row.cells, (cell) => cell.textContent))"
    )
    assert len(rows) >= 5
    for row in rows:
        assert sum(tenths(share) for share in row[3:7]) == 1000
    browser.all("#slowest summary")[0].click()
    assert {"collect", "train"} <= set(browser.texts("#slowest details[open] td:first-child"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_theme_follows_the_system_and_the_button_and_is_kept_nowhere(opened, dark):
    browser = opened(dark=dark)
    shade = lambda: sum(map(int, re.findall(r"\d+", browser.run("return getComputedStyle(document.body).backgroundColor"))[:3]))
    before = shade()
    assert (before < 200) == dark
    drawn = picture(browser)
    browser.one("#theme").click()
    assert (shade() < 200) != dark
    assert picture(browser) != drawn
    assert browser.run("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    browser = opened(dark=dark)
    assert shade() == before


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_narrow_screen_shows_everything_without_scrolling_sideways(opened, dark):
    browser = opened(width=390, height=844, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    outside = browser.run(
        "return Array.from(document.querySelectorAll('main *')).filter((e) => !e.closest('.scroll, nav'))"
        ".filter((e) => e.getBoundingClientRect().width && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map((e) => String(e.id || e.className || e.tagName))"
    )
    assert outside == []


def test_text_can_be_read_on_every_colour(opened):
    """Contrast of at least 4.5 between a name and the colour it stands on."""
    script = """
        const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
        const light = (colour) => {
          const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((x) => linear(x / 255));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        return Array.from(document.querySelectorAll(".cell .patch, .stack .patch"), (e) => {
          const s = getComputedStyle(e);
          return [e.textContent, ratio(light(s.color), light(s.backgroundColor))];
        });
    """
    for dark in (False, True):
        for name, ratio in opened(dark=dark).run(script):
            assert ratio >= 4.5, (name, ratio, dark)


ODD = {
    "one span": "with profile('only'): pass",
    "no iterations": "for _ in range(50):\n    with profile('a'):\n        with profile('b'): pass",
    "one iteration": "with profile('a'): pass\nhotloop.count('env_steps')\nhotloop.step()",
    "iterations without spans": "for _ in range(40): hotloop.step()",
    "deep": "def down(n):\n    with profile(f'd{n}'):\n        if n: down(n - 1)\ndown(90)",
    "killed": "with profile('stuck'):\n    sum(range(9999))\n    import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("code", ODD.values(), ids=ODD)
def test_odd_sessions_are_drawn_without_a_complaint(chromium, tmp_path, code):
    session = record(tmp_path, f"import hotloop\nfrom hotloop import profile\nhotloop.start(out='runs')\n{code}\n", check=False)
    chromium.open(show(session, tmp_path).file)
    assert chromium.texts(TREE)[0].startswith("▾wall")
    chromium.one("#theme").click()
    assert chromium.misdeeds() == []


def test_a_session_before_its_first_span_is_drawn_without_a_complaint(chromium, training, tmp_path):
    events = replace(training.session.events, **{k: getattr(training.session.events, k)[:0] for k in Events.__slots__})
    shards = tuple(replace(shard, iterations=(), iterations_closed=0) for shard in training.session.shards)
    empty = SessionData(tmp_path, {}, shards, training.session.processes, events, ())
    report = replace(training.report, session=empty, sheet=None, owners={}, operations=(), sps=None)
    report = replace(report, ledger=replace(report.ledger, balances=()), wall_ns=0, loop_ns=0, counters={})
    page = tmp_path / "empty.html"
    page.write_bytes(html_bytes(report))
    chromium.open(page)
    assert "recorded nothing yet" in chromium.one("#totals").text
    assert "there is no timeline" in chromium.one("#timeline-said").text
    assert "No iterations were counted" in chromium.one("#charts").text
    assert chromium.misdeeds() == []


def test_hostile_names_are_shown_and_execute_nothing(chromium, hostile):
    from selenium.webdriver.common.by import By

    browser = chromium
    browser.open(hostile.file)
    elements = browser.run("return document.querySelectorAll('*').length")
    browser.one("#sheet-open").click()
    browser.one("#operations-waits").click()
    browser.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
    for field in ("#icicle-search", "#operations-filter"):
        for payload in PAYLOADS[:20]:
            browser.run(
                "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", browser.one(field), payload
            )
        browser.run("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", browser.one(field))
    # Every handler that shows a name, on every element that has one.
    browser.run(
        "for (const e of document.querySelectorAll('.cell, #tree tr, td.label, #totals .stack > div, #charts svg'))"
        " for (const type of ['pointermove', 'pointerover', 'mouseover', 'focus', 'pointerleave'])"
        " e.dispatchEvent(new PointerEvent(type, { bubbles: true, clientX: 200, clientY: 200 }))"
    )
    for number in (3, 2, 1, 0):
        browser.run("document.querySelectorAll('.cell[data-row]')[arguments[0]]?.click()", number)
    browser.hover(browser.one("#timeline-canvas"), 0, 0)
    for button in browser.driver.find_elements(By.CSS_SELECTOR, "#operations-table th button, #timeline-windows button"):
        browser.run("arguments[0].click()", button)

    shown = set(browser.texts("#operations-table td.label"))
    for text in (
        PAYLOADS[0],
        PAYLOADS[1],
        PAYLOADS[7],
        "\\u202egpj.exe",
        "nul\\x00byte",
        "\\x1b[31mred\\x1b[0m\\x07",
        "\\ud800lone",
        "(no name)",
    ):
        assert text in shown, text
    assert max(len(name) for name in shown) <= 2000
    assert browser.one("h1").text == PAYLOADS[1]
    assert browser.run("return document.title").startswith(PAYLOADS[1])
    assert browser.run("return window.pwned") is None
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert (
        browser.run("return document.querySelectorAll('iframe, img, base, link, object, embed, form, style ~ style').length")
        == 0
    )
    assert browser.run("return document.querySelectorAll('meta[http-equiv]').length") == 1
    names = browser.run("return Array.from(document.querySelectorAll('*')).flatMap((e) => e.getAttributeNames())")
    assert not [name for name in names if name.startswith("on")]
    assert browser.run("return Object.prototype.polluted === undefined && ({}).length === undefined")
    assert elements > 500
    assert browser.misdeeds() == []


def test_the_page_cannot_turn_text_into_markup_even_if_it_tried(chromium, training):
    browser = chromium
    browser.open(training.file)
    tried = browser.run(
        "try { document.querySelector('h1').innerHTML = '<b>x</b>'; return 'done'; } catch (error) { return error.name; }"
    )
    assert tried == "TypeError"
    assert "policy: require-trusted-types-for" in " ".join(browser.misdeeds())
