"""`python -m benchmarks`: it knows every benchmark, and its page names no machine."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import __main__ as figures

ROOT = Path(__file__).parents[2]
HELPERS = {"measure.py", "__init__.py", "__main__.py"}


def test_every_script_is_run_and_every_run_has_a_script():
    scripts = {path.name for path in (ROOT / "benchmarks").glob("*.py")} - HELPERS
    named = {b.command.split()[0] for b in figures.BENCHMARKS}
    assert {name for name in named if "/" not in name and name.endswith(".py")} == scripts
    for b in figures.BENCHMARKS:
        for command in filter(None, (b.command, b.quick)):
            assert (ROOT / "benchmarks" / command.split()[0]).exists(), command
    assert len({b.name for b in figures.BENCHMARKS}) == len(figures.BENCHMARKS)


def test_commands_in_the_documentation_are_among_them():
    text = "\n".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    shown = {m[1] for m in re.finditer(r"python benchmarks/([\w/]+(?:\.py)?)", text)}
    known = {b.command.split()[0] for b in figures.BENCHMARKS}
    assert shown <= known


def test_the_page_shows_what_was_said_when_and_on_which_class_of_machine():
    output = figures.clean(f"\x1b[1mok\x1b[0m {ROOT}/x.py\nprogress 1\rprogress 2\nsee /tmp/abc/def now\n")
    assert output == "ok x.py\nprogress 2\nsee (a temporary folder) now"
    result = figures.Result("python benchmarks/reader.py", "2026-11-16", "Linux, 2 cores", 0.5, 1, output)
    page = figures.page({"reader": result})
    assert "2026-11-16 · Linux, 2 cores · 0.5 min · something wanted was missed" in page
    assert "not measured since this page exists" in page
    assert "/tmp" not in page
