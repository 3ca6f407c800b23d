"""What a newcomer meets first: the table of contents, examples in every help, errors that lead on, the demo, the links."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hotloop.cli.demo import DEMOS, QUICKEST, SHIPPED, find_examples
from hotloop.cli.main import CONTENTS, cli, main

ROOT = Path(__file__).parents[2]
BESIDE = ["README.md", "benchmarks/README.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("examples/*/README.md"))]


def test_the_help_lists_every_verb_once_under_its_purpose(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    listed = [command.name for rows in CONTENTS.values() for command, _ in rows]
    assert sorted(listed) == sorted(cli.commands)
    for name in listed:
        assert len(re.findall(rf"^  {name} +\S.*$", text, re.MULTILINE)) == 1
    assert [text.index(f"\n{title}:") for title in CONTENTS] == sorted(text.index(f"\n{title}:") for title in CONTENTS)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_verb_shows_two_examples(name):
    command = cli.commands[name]
    examples = re.findall(rf"^ *hotloop {name}( .*)?$", command.get_help(click.Context(command, info_name=name)), re.MULTILINE)
    assert len(examples) >= 2


def test_a_script_in_the_place_of_a_verb_is_told_how_to_record_it(capsys):
    assert main(["train.py", "--lr", "0.1"]) == 2
    assert "hotloop run train.py --lr 0.1" in capsys.readouterr().err


def test_without_a_session_the_way_to_one_is_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report"]) == 3
    assert "`hotloop demo`" in capsys.readouterr().err


def test_the_help_of_demo_lists_the_demos_there_are(capsys):
    assert main(["demo", "--help"]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"^  (\w+)  +\S", text, re.MULTILINE)[: len(DEMOS)] == list(DEMOS)
    page = (ROOT / "docs/demo.md").read_text()
    assert all(f"`{name}`" in page for name in DEMOS)


def test_an_unknown_demo_and_one_that_is_not_here_get_one_sentence(tmp_path, monkeypatch, capsys):
    assert main(["demo", "nonsense"]) == 2
    assert QUICKEST in capsys.readouterr().err
    monkeypatch.setattr("hotloop.cli.demo.find_examples", lambda folder: None)
    assert main(["demo", "quickstart"]) == 2
    error = capsys.readouterr().err
    assert "`hotloop demo` alone works anywhere" in error
    assert error.count("\n") == 1


def test_every_example_that_is_a_demo_is_in_the_checkout(tmp_path):
    examples = find_examples(ROOT / "docs")
    assert examples == ROOT / "examples"
    for demo in DEMOS.values():
        assert ((SHIPPED if demo.shipped else examples) / demo.script).is_file()


def test_the_demo_finds_what_slows_it_and_says_where_its_report_is(tmp_path):
    done = subprocess.run([sys.executable, "-m", "hotloop", "demo"], cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    (session,) = [path for path in (tmp_path / "runs").iterdir() if (path / "session.json").exists()]
    assert f"the report as a page: runs/{session.name}/report.html" in done.stdout
    assert (session / "report.html").stat().st_size > 10_000
    assert "next: hotloop ab" in done.stdout
    first = json.loads((session / "findings.json").read_text())["findings"][0]
    assert (first["cause"], first["function"]) == ("env-step-hot", "Maze.flood")


def test_the_fix_of_the_demo_trains_the_same(tmp_path):
    said = {
        subprocess.run(
            [sys.executable, SHIPPED / "maze.py", "--steps", "600", *extra], capture_output=True, text=True, check=True
        ).stdout
        for extra in ([], ["--fixed"])
    }
    assert len(said) == 1


@pytest.mark.parametrize("page", BESIDE)
def test_links_of_pages_beside_the_code_lead_somewhere(page):
    """Those below docs/ are checked by `mkdocs build --strict`."""
    for link in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text()):
        if "://" not in link:
            assert (ROOT / page).parent.joinpath(link).exists(), link
