"""Known waits for the Python recorder: what can be reached by exchanging attributes.

Locks taken directly are out of reach here (their type cannot be changed from Python); conditions, and with them events,
queues and futures, are covered.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from .spans import current_track
from .tree import state

TARGETS = (
    ("time", "", "sleep", "sleep"),
    ("select", "", "select", "select"),
    ("selectors", "EpollSelector", "select", "select"),
    ("selectors", "KqueueSelector", "select", "select"),
    ("selectors", "PollSelector", "select", "select"),
    ("selectors", "SelectSelector", "select", "select"),
    ("socket", "socket", "recv", "socket"),
    ("socket", "socket", "recv_into", "socket"),
    ("socket", "socket", "recvfrom", "socket"),
    ("socket", "socket", "send", "socket"),
    ("socket", "socket", "sendall", "socket"),
    ("socket", "socket", "accept", "socket"),
    ("socket", "socket", "connect", "socket"),
    ("threading", "Condition", "wait", "lock"),
)

_undo: list[tuple[Any, str, Any, bool]] = []


def _stand_in(original: Any, kind: str) -> Any:
    zone = state.reserved[f"(waiting: {kind})"]

    @functools.wraps(original)
    def waiting(*args: Any, **keywords: Any) -> Any:
        if current_track() is None:
            return original(*args, **keywords)
        with zone:
            return original(*args, **keywords)

    return waiting


def hook_waits() -> list[str]:
    """Hook what can be hooked; answers the names, those out of reach with a `!` in front."""
    if _undo:
        return []
    done = []
    for module, owner_name, attribute, kind in TARGETS:
        owner: Any = importlib.import_module(module)
        if owner_name:
            owner = getattr(owner, owner_name, None)
        original = getattr(owner, attribute, None)
        if owner is None or original is None:
            continue
        _undo.append((owner, attribute, original, attribute in vars(owner)))
        setattr(owner, attribute, _stand_in(original, kind))
        done.append(".".join(filter(None, (module, owner_name, attribute))))
    return [*done, "!_thread.lock.acquire"]


def unhook_waits() -> None:
    while _undo:
        owner, attribute, original, own = _undo.pop()
        if own:
            setattr(owner, attribute, original)
        else:
            delattr(owner, attribute)


_rusage: list[Any] = []


def hook_rusage(callback: Any) -> bool:
    """Call `callback(after)` around every `resource.getrusage`; None puts the original back."""
    try:
        import resource
    except ImportError:
        return False
    if _rusage:
        resource.getrusage = _rusage.pop()
    if callback is None:
        return False
    original = resource.getrusage
    _rusage.append(original)

    @functools.wraps(original)
    def getrusage(who: int, /) -> Any:
        callback(False)
        result = original(who)
        callback(True)
        return result

    resource.getrusage = getrusage
    return True
