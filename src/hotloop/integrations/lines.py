"""Calls of tensors' methods by the line of the user's code that makes them.

What lives here: the table of lines, and what stands in for a method while its calls are counted. Who may touch it: `transfers`
and `reads`. Invariant: the table is bounded, and the stand-in is equal to what it stands in for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, MethodType
from typing import Any

MOST_LINES = 500
MOST_CODES = 5000
TORCHS, LIBRARYS, USERS = range(3)  # whose code a frame runs
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", f"{os.sep}lib{os.sep}python3")


class Lines:
    """Per line and kind of call: how often, how much, how long."""

    def __init__(self, torch_folder: str) -> None:
        self._skipped = (torch_folder, _OURS, "<")
        self._whose: dict[CodeType, int] = {}
        self.rows: dict[tuple[CodeType | None, int, str, str], list[int]] = {}

    def row(self, call: str, direction: str) -> list[int]:
        """The numbers of the line that calls: how often, bytes, pinned, blocking, nanoseconds."""
        frame = self._frame()
        key = (frame.f_code, frame.f_lineno, call, direction) if frame is not None else (None, 0, call, direction)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MOST_LINES:
                key = (None, 0, call, direction)
            row = self.rows.setdefault(key, [0, 0, 0, 0, 0])
        return row

    def numbers(self) -> list[dict[str, Any]]:
        return [
            {"file": code.co_filename if code else "", "line": line, "function": code.co_qualname if code else "(more lines)",
             "call": call, "direction": direction, "count": row[0], "bytes": row[1], "pinned": row[2], "blocking": row[3],
             "ns": row[4]}
            for (code, line, call, direction), row in list(self.rows.items())
        ]  # fmt: skip

    def _frame(self) -> FrameType | None:
        """The innermost frame of the user's own code; without one, of whatever is not torch's or ours."""
        frame: FrameType | None = sys._getframe(3)
        first: FrameType | None = None
        whose = self._whose
        for _ in range(60):
            if frame is None:
                break
            kind = whose.get(frame.f_code)
            if kind is None:
                kind = self._ask(frame.f_code)
            if kind == USERS:
                return frame
            if kind == LIBRARYS and first is None:
                first = frame
            frame = frame.f_back
        return first

    def _ask(self, code: CodeType) -> int:
        file = code.co_filename
        kind = TORCHS if file.startswith(self._skipped) else LIBRARYS if any(part in file for part in _LIBRARIES) else USERS
        if len(self._whose) < MOST_CODES:
            self._whose[code] = kind
        return kind


class Method:
    """Stands in for a method of tensors, and is equal to it: lazy parameters and subclasses keep lists of methods they know,
    and torch asks them about the one it finds on its class."""

    def __init__(self, original: Any, owner: type, call: Callable[..., Any]) -> None:
        self.__wrapped__, self.__name__, self._owner, self._call = original, original.__name__, owner, call

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self._call(*args, **keywords)

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        return self if tensor is None else MethodType(self._call, tensor)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self.__wrapped__

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        if name in ("__wrapped__", "_owner", "_call"):  # half made: a copy
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        return getattr, (self._owner, self.__name__)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)
