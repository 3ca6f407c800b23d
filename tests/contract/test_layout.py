from __future__ import annotations

from hotloop.record import twin
from hotloop.store import schema

from .conftest import native


def test_the_native_layout_is_the_schema():
    layout = native.layout()
    assert len(layout) > 25
    for name, value in layout.items():
        expected = getattr(schema, name)
        assert value == (len(expected) if name == "LOSSES" else expected), name


def test_both_recorders_offer_the_same_names():
    public = {name for name in dir(native) if not name.startswith("_")} - {"layout", "fail_nth", "dump_coverage"}
    assert public == set(twin.__all__)
