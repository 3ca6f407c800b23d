"""What HotLoop knows of libraries: one file and one `Adapter` each.

What lives here: the list of them. Who may touch it: hooks (`integrations`), ownership (`analyse.owners`), and
adapters of other packages, for the names they are made of. Invariant: no library is imported here, and
nothing of ours but `model`. A new library is a file beside this one and its name in the list; `docs/adapters.md` shows how.
"""

from ..model import role
from ..model.adapter import Adapter, Kind, Target
from . import gymnasium, logs, named, rllib, stable_baselines3, torch, torchrl, workers

ADAPTERS: tuple[Adapter, ...] = (
    *(x.ADAPTER for x in (torch, gymnasium, stable_baselines3, torchrl, rllib, logs, workers)),
    *named.ADAPTERS,
)

__all__ = ["ADAPTERS", "Adapter", "Kind", "Target", "role"]
