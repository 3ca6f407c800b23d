from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hotloop

MODULES = [
    name for _, name, _ in pkgutil.walk_packages(hotloop.__path__, "hotloop.") if not name.endswith(("__main__", "_zone"))
]


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for_and_its_examples_run(name):
    module = importlib.import_module(name)
    assert module.__doc__ or name.count(".") == 1, f"{name} does not say what lives there"
    assert doctest.testmod(module).failed == 0


def test_no_dangerous_reading_anywhere():
    """pickle, marshal, eval and the like have no place in reading what anyone hands us."""
    import re
    from pathlib import Path

    forbidden = re.compile(r"\b(pickle|marshal|shelve|yaml\.load|eval|exec)\(|import (pickle|marshal|shelve)\b")
    for path in Path(hotloop.__file__).parent.rglob("*.py"):
        found = forbidden.search(path.read_text())
        assert found is None, f"{path}: {found}"


def test_the_pages_of_the_causes_are_those_of_the_code():
    """After a change: python docs/make_causes.py"""
    import runpy
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "docs"
    pages = runpy.run_path(str(folder / "make_causes.py"))["pages"]()
    assert {path.name: path.read_text() for path in (folder / "causes").iterdir()} == pages
