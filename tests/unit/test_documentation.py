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


def test_every_cause_has_a_page_that_says_what_to_do_and_how_it_is_recognised():
    """The site makes them; nothing of them is kept that could differ from the code."""
    import runpy
    from pathlib import Path

    from hotloop.analyse.findings.engine import causes

    pages = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs/make_causes.py"))["pages"]()
    assert list(pages) == list(causes())
    for name, text in pages.items():
        assert text.startswith(f"# {name}\n\n")
        said = " ".join(text.split())
        assert " What to do: " in said and "ecognised by: " in said and " Action in the finding: " in said, name


def test_links_to_files_beside_the_pages_lead_somewhere():
    """In the repository; those of the site are checked by `mkdocs build --strict`."""
    import re
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "docs"
    links = [(page, link) for page in folder.rglob("*.md") for link in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))]
    gone = [(page.name, link) for page, link in links if "://" not in link and not page.parent.joinpath(link).exists()]
    assert not gone
