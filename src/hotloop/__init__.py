"""HotLoop: where reinforcement-learning training time goes, what to change, and whether it helped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .api import (
    Profiler,
    count,
    get_global_profiler,
    get_profiler,
    profile,
    profile_function,
    start,
    step,
    stop,
)
from .version import __version__ as __version__

if TYPE_CHECKING:
    from .session import Session as Session
    from .session import load as load

__all__ = [  # and load and Session, on demand: `import *` inside training must not load NumPy
    "Profiler", "count", "get_global_profiler", "get_profiler", "profile", "profile_function", "start", "step", "stop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("Session", "load"):  # they need NumPy, which the training process must not pay for
        from . import session

        return getattr(session, name)
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")
