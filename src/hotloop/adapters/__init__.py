"""What HotLoop knows of libraries: one file and one `Adapter` each.

What lives here: all of them, found in this folder. Who may touch it: hooks (`integrations`), ownership (`analyse.owners`), and
adapters of other packages, for the names they are made of. Invariant: no library is imported here, and
nothing of ours but `model`. A new library is a file beside this one; `docs/adapters.md` shows how.
"""

from importlib import import_module
from pkgutil import iter_modules

from ..model import role
from ..model.adapter import Adapter, Kind, Target
from . import named

ADAPTERS: tuple[Adapter, ...] = (
    *(import_module(f"{__name__}.{x.name}").ADAPTER for x in iter_modules(__path__) if x.name != "named"),
    *named.ADAPTERS,
)

__all__ = ["ADAPTERS", "Adapter", "Kind", "Target", "role"]
