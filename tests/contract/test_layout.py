from __future__ import annotations

from types import ModuleType

from hotloop.record import twin

from .conftest import native


def test_both_recorders_offer_the_same_names():
    public = {name for name in dir(native) if not name.startswith("_")} - {"fail_nth", "dump_coverage"}
    offered = {name for name, value in vars(twin).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    assert public == offered
