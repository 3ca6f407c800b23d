"""asyncio: each task has its own stack of open spans.

What lives here: a hook around every callback an event loop runs. While a task is suspended its open spans are lifted off
the thread's stack with their clocks running: an awaited span is open (busy), but it is not running (exclusive).
Invariant: between two callbacks the thread's stack is what it was when the loop was entered.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

_original: list[Any] = []


def install(recorder: ModuleType, events: ModuleType) -> None:
    """Hook `asyncio.events.Handle._run`; called when asyncio has been imported."""
    if _original:
        return
    run = events.Handle._run
    lifted: dict[int, tuple[weakref.ref[Any], Any]] = {}
    depth, lift, lower = recorder.depth, recorder.lift, recorder.lower

    def _run(handle: Any) -> Any:
        # The callback of a task's step carries the task itself; everything else runs on the loop's own stack.
        task = getattr(handle._callback, "__self__", None)
        if task is None or not hasattr(task, "get_coro"):
            return run(handle)
        key = id(task)
        base = depth()
        held = lifted.pop(key, None)
        if held is not None and held[0]() is task:
            lower(held[1])
        try:
            return run(handle)
        finally:
            token = lift(base, True)
            if token is not None:
                # When the task is destroyed while suspended, the token goes too, and its spans are counted as abandoned.
                lifted[key] = (weakref.ref(task, lambda _: lifted.pop(key, None)), token)

    _original.append((events.Handle, run))
    events.Handle._run = _run


def uninstall() -> None:
    if _original:
        handle, run = _original.pop()
        handle._run = run
