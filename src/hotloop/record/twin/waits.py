"""Known waits for the Python recorder: what can be reached by exchanging attributes.

Locks taken directly are out of reach here (their type cannot be changed from Python); conditions, and with them events,
queues and futures, are covered.

Invariant: a stand-in calls the original exactly as it was called, and adds a wait span only on a thread that already records.
"""

from __future__ import annotations

import functools
import importlib
import os
from typing import Any

from ...store import schema as s
from .spans import WRITE, Zone, current_track
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

# Text written to files and terminals goes through a type that Python cannot change.
UNREACHABLE_WRITES = ("_io.TextIOWrapper.write", "_io.TextIOWrapper.flush")

_undo: dict[str, list[tuple[Any, str, Any, bool]]] = {"waits": [], "writes": []}


def _stand_in(original: Any, zone: Zone) -> Any:
    @functools.wraps(original)
    def waiting(*args: Any, **keywords: Any) -> Any:
        track = current_track()
        if track is None:
            return original(*args, **keywords)
        zone.__enter__()
        frame = track.frames[-1] if track.frames and track.frames[-1].zone is zone else None
        expired = False
        try:
            result = original(*args, **keywords)
            expired = has_expired(result)
            return result
        except TimeoutError:
            expired = True
            raise
        finally:
            zone.__exit__()
            if expired and frame is not None:
                frame.node.add(s.N_EXPIRED_NS, track.last - frame.start)

    return waiting


def has_expired(result: Any) -> bool:
    """Did a wait end by a time limit, without what was waited for?"""
    if isinstance(result, tuple):  # of select(): three lists
        return all(type(ready) is list and not ready for ready in result)
    return result is False or (type(result) is list and not result)


def _exchange(which: str, owner: Any, attribute: str, zone: str) -> None:
    original = getattr(owner, attribute)
    _undo[which].append((owner, attribute, original, attribute in vars(owner)))
    setattr(owner, attribute, _stand_in(original, state.reserved[zone]))


def hook_waits() -> list[str]:
    """Hook what can be hooked; answers the names, those out of reach with a `!` in front."""
    if _undo["waits"]:
        return []
    done = []
    for module, owner_name, attribute, kind in TARGETS:
        owner: Any = importlib.import_module(module)
        if owner_name:
            owner = getattr(owner, owner_name, None)
        if hasattr(owner, attribute):
            _exchange("waits", owner, attribute, f"(waiting: {kind})")
            done.append(".".join(filter(None, (module, owner_name, attribute))))
    return [*done, "!_thread.lock.acquire"]


def hook_writes() -> list[str]:
    """As hook_waits, for what a script writes: only what goes to the disk at once can be reached."""
    if _undo["writes"]:
        return []
    _exchange("writes", os, "fsync", WRITE)
    return [*(f"!{name}" for name in UNREACHABLE_WRITES), "os.fsync"]


def unhook_waits() -> None:
    for undo in _undo.values():
        while undo:
            owner, attribute, original, own = undo.pop()
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

    def around(after: bool) -> None:
        try:
            callback(after)
        except Exception:
            state.lose("internal")

    @functools.wraps(original)
    def getrusage(who: int, /) -> Any:
        around(False)
        result = original(who)
        around(True)
        return result

    resource.getrusage = getrusage
    return True
