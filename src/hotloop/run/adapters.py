"""Adapters that other packages bring, by their entry points.

What lives here: looking them up, in the supervisor. Invariant: nothing of them is imported here; the script's processes import
one when, and only if, the library it is for is imported.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from ..integrations.install import INTEGRATIONS

GROUP = "hotloop.adapters"


def installed_adapters() -> dict[str, str]:
    """Where each is ("module:object"), by the library it is for."""
    try:
        return {entry.name: entry.value for entry in entry_points(group=GROUP) if entry.name not in INTEGRATIONS}
    except Exception:  # whatever some package has written there: the script is run without
        return {}


def all_hooks() -> tuple[str, ...]:
    """The names `--hooks` may choose among."""
    return (*INTEGRATIONS, *installed_adapters())
