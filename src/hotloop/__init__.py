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

if TYPE_CHECKING:
    from .store.reader import Session as Session

__version__ = "0.1.0"
__all__ = [  # and Session, on demand: `import *` inside training must not load NumPy
    "Profiler", "count", "get_global_profiler", "get_profiler", "profile", "profile_function", "start", "step", "stop",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "Session":  # needs NumPy, which the training process must not pay for
        from .store.reader import Session

        return Session
    raise AttributeError(f"module 'hotloop' has no attribute {name!r}")
