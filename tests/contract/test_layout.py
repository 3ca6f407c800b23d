from __future__ import annotations

from hotloop.record import twin

from .conftest import native


def test_both_recorders_offer_the_same_names():
    public = {name for name in dir(native) if not name.startswith("_")} - {"fail_nth", "dump_coverage"}
    assert public == set(twin.__all__)
