"""The format is described once: the C header is what the description says."""

from __future__ import annotations

import runpy
from pathlib import Path

import hotloop
from hotloop.store import schema as s

NATIVE = Path(hotloop.__file__).parent / "record" / "native"


def test_the_header_is_that_of_the_description():
    """After a change: python src/hotloop/record/native/make_layout.py"""
    assert (NATIVE / "layout.h").read_text() == runpy.run_path(str(NATIVE / "make_layout.py"))["text"]()


def test_records_are_as_long_as_the_description_says():
    words = {name.removesuffix("Rec").upper(): s.words_of(fields) for name, fields in s.RECORDS.items()}
    said = {
        name.removesuffix("_WORDS"): value for name, value in vars(s).items() if name.endswith("_WORDS") and type(value) is int
    }
    assert words["HEADER"] == said.pop("BLOCK")
    assert words["BLOCKHEAD"] == said.pop("HEAD")
    assert said == {name: words[name] for name in said}
    assert len(said) > 10
