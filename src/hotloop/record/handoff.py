"""Work handed to a pool hangs below the span that handed it over.

What lives here: hooks on `submit` of the two executors of the standard library. Invariant: the function runs with the same
arguments and result; only the frame that marks where it came from is added. If recording is off in the worker, it is just
called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import backend

_originals: list[tuple[type, Any]] = []


def run_here(shard: int, path: int, around: int, function: Callable[..., Any], /, *args: Any, **keywords: Any) -> Any:
    """In the worker: `function`, its spans below the path it was submitted from. What an environment's step hands over is part
    of that step, what an evaluation hands over is evaluation."""
    recorder = backend.recorder  # chosen after this module is imported; an import here would cost 7 µs at every call
    before = recorder.adopt(shard, path, around)
    try:
        return function(*args, **keywords)
    finally:
        recorder.release(before)


def install(recorder: ModuleType, executor: type) -> None:
    original = executor.submit  # type: ignore[attr-defined]

    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        origin = recorder.origin()
        if origin is None:
            return original(self, fn, *args, **kwargs)
        return original(self, run_here, *origin, fn, *args, **kwargs)

    submit.__doc__ = original.__doc__
    _originals.append((executor, original))
    executor.submit = submit  # type: ignore[attr-defined]


def uninstall() -> None:
    while _originals:
        executor, original = _originals.pop()
        executor.submit = original  # type: ignore[attr-defined]
