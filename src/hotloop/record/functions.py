"""Profiling a function: plain, async, generator, async generator.

What lives here: the wrappers of `@profile_function`. Invariant: a profiled function is called, awaited, iterated, sent to,
thrown into, closed and pickled like the original. A generator's span runs only while the generator does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from functools import update_wrapper
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from ._zone import Zone

_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200


def decorate(recorder: ModuleType, zone: Zone, function: Any, track_memory: bool = False) -> Any:
    """`function`, each call a span of `zone`."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(recorder, zone, function.__func__, track_memory))
    if not callable(function):
        raise TypeError(f"profile_function decorates functions, not {type(function).__name__} objects")
    code = getattr(function, "__code__", None)
    if zone.site is None and code is not None:
        zone.site = f"{code.co_filename}:{code.co_firstlineno}"
    flags = getattr(code, "co_flags", 0)
    span: Callable[[], Any] = lambda: zone
    if track_memory:
        from .memory import MemorySpan

        span = lambda: MemorySpan(recorder, zone)
    wrapped: Any
    if flags & _COROUTINE:
        wrapped = _coroutine(span, function)
    elif flags & _GENERATOR:
        wrapped = _generator(recorder, zone, function)
    elif flags & _ASYNC_GENERATOR:
        wrapped = _async_generator(recorder, zone, function)
    elif track_memory:
        wrapped = _plain(span, function)
    else:
        wrapped = recorder.wrap(zone, function)
    return update_wrapper(wrapped, function)


def _plain(span: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    def profiled(*args: Any, **keywords: Any) -> Any:
        with span():
            return function(*args, **keywords)

    return profiled


def _coroutine(span: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    async def profiled(*args: Any, **keywords: Any) -> Any:
        with span():
            return await function(*args, **keywords)

    return profiled


class _Resumable:
    """One span over the running stretches of a generator. `with` it around each stretch."""

    __slots__ = ("_base", "_recorder", "_token", "_zone", "over")

    def __init__(self, recorder: ModuleType, zone: Zone) -> None:
        self._recorder, self._zone = recorder, zone
        self._token: Any = None
        self._base = 0
        self.over = False

    def __enter__(self) -> None:
        self._base = self._recorder.depth()
        if self._token is not None:
            token, self._token = self._token, None
            self._recorder.lower(token)
        else:
            self._zone.__enter__()

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is not None or self.over:  # an exception, StopIteration among them, ends the generator
            self._zone.__exit__(None, None, None)
        else:
            self._token = self._recorder.lift(self._base, False)


def _generator(recorder: ModuleType, zone: Zone, function: Callable[..., Any]) -> Callable[..., Any]:
    def profiled(*args: Any, **keywords: Any) -> Generator[Any, Any, Any]:
        inner = function(*args, **keywords)
        running = _Resumable(recorder, zone)
        resume: Callable[[], Any] = inner.__next__
        while True:
            try:
                with running:
                    item = resume()
            except StopIteration as stop:
                return stop.value
            try:
                sent = yield item
            except GeneratorExit:
                running.over = True
                with running:
                    inner.close()
                raise
            except BaseException as thrown:
                resume = lambda error=thrown: inner.throw(error)  # type: ignore[misc]
            else:
                resume = inner.__next__ if sent is None else lambda value=sent: inner.send(value)  # type: ignore[misc]

    return profiled


def _async_generator(recorder: ModuleType, zone: Zone, function: Callable[..., Any]) -> Callable[..., Any]:
    async def profiled(*args: Any, **keywords: Any) -> AsyncGenerator[Any, Any]:
        inner = function(*args, **keywords)
        running = _Resumable(recorder, zone)
        resume: Callable[[], Any] = inner.__anext__
        while True:
            try:
                with running:
                    item = await resume()
            except StopAsyncIteration:
                return
            try:
                sent = yield item
            except GeneratorExit:
                running.over = True
                with running:
                    await inner.aclose()
                raise
            except BaseException as thrown:
                resume = lambda error=thrown: inner.athrow(error)  # type: ignore[misc]
            else:
                resume = inner.__anext__ if sent is None else lambda value=sent: inner.asend(value)  # type: ignore[misc]

    return profiled
