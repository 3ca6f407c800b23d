"""Copies between host and device, and waits for a device, by the line of the user's code that asks for them.

What lives here: the methods of tensors that copy or wait, what counts as real (a tensor that lies on a device, or comes to lie
on one), and the table of lines. Hooked only once the script has initialised CUDA. Invariant: the call is made exactly as it
was made, once; the table is bounded."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, MethodType
from typing import Any

from ..model.device import SYNC, TO_DEVICE, TO_HOST
from . import _patch as p

READS = ("item", "cpu", "tolist", "__bool__", "__float__", "__int__", "__index__")  # to the host: the host waits
MOVES = ("to", "cuda", "copy_")  # whichever way
WAITS = (("cuda", "synchronize", True), ("cuda.Stream", "synchronize", False), ("cuda.Event", "synchronize", False))
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


class Transfers:
    """The hooks. `device` is told when the host begins to wait and when it has waited."""

    def __init__(self, patches: p.Patches, torch: Any, device: Any) -> None:
        self._device, self._dtype = device, torch.dtype
        self.lines = Lines(os.path.dirname(torch.__file__) + os.sep)
        tensor = torch.Tensor
        for name in READS:
            if hasattr(tensor, name):
                original = getattr(tensor, name)
                patches.put(tensor, name, Method(original, tensor, self._reading(original, name.strip("_"))))
        for name in MOVES:
            original = getattr(tensor, name)
            patches.put(tensor, name, Method(original, tensor, self._moving(original, name)))
        for path, name, everything in WAITS:
            owner = functools.reduce(getattr, path.split("."), torch)
            patches.put(owner, name, self._waiting(getattr(owner, name), name, everything))

    def _reading(self, function: Callable[..., Any], call: str) -> Callable[..., Any]:
        device, direction = self._device, TO_HOST

        @functools.wraps(function)
        def read(tensor: Any, *args: Any, **keywords: Any) -> Any:
            if device.is_off or not tensor.is_cuda or device.is_reading():
                return function(tensor, *args, **keywords)
            begin, wait = device.wait_begins(tensor=tensor)
            try:
                return function(tensor, *args, **keywords)
            finally:
                ns = device.wait_ends(begin, wait)
                self._note(call, direction, tensor, ns)

        return read

    def _moving(self, function: Callable[..., Any], call: str) -> Callable[..., Any]:
        """`to`, `cuda` and `copy_`: which way is known from both ends. A copy to the host waits; one to the device does where
        the memory is not pinned, or nobody asked it not to."""
        device = self._device

        @functools.wraps(function)
        def move(tensor: Any, *args: Any, **keywords: Any) -> Any:
            source = args[0] if call == "copy_" and args else tensor
            if device.is_off or self._stays(call, tensor, source, args, keywords) or device.is_reading():
                return function(tensor, *args, **keywords)
            was = getattr(source, "is_cuda", None)
            asynchronous = bool(keywords.get("non_blocking", len(args) > 1 and call == "copy_" and args[1]))
            begin, wait = device.wait_begins(blocks=bool(was) and not asynchronous, tensor=source)
            result = None
            try:
                result = function(tensor, *args, **keywords)
                return result
            finally:
                ns = device.wait_ends(begin, wait)
                now = getattr(tensor if call == "copy_" else result, "is_cuda", None)
                if result is not None and was is not None and now is not None and now != was:
                    self._note(call, TO_HOST if was else TO_DEVICE, source, ns, result if was else source, asynchronous)

        return move

    def _stays(self, call: str, tensor: Any, source: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Both ends are on one side, as far as that can be told before the call: a change of type, mostly."""
        if call == "copy_":
            return bool(getattr(source, "is_cuda", None) == tensor.is_cuda)
        if call == "cuda":
            return bool(tensor.is_cuda)
        target = keywords.get("device", args[0] if args else None)
        kind = target if isinstance(target, str) else getattr(target, "type", None)
        if isinstance(kind, str):
            return bool(kind.startswith("cuda") == tensor.is_cuda)
        return target is None or isinstance(target, self._dtype) or getattr(target, "is_cuda", None) == tensor.is_cuda

    def _waiting(self, function: Callable[..., Any], call: str, everything: bool) -> Callable[..., Any]:
        device = self._device

        @functools.wraps(function)
        def wait_for(*args: Any, **keywords: Any) -> Any:
            if device.is_off:
                return function(*args, **keywords)
            begin, wait = device.wait_begins(everything)
            try:
                return function(*args, **keywords)
            finally:
                ns = device.wait_ends(begin, wait)
                self._note(call, SYNC, None, ns)

        return wait_for

    def _note(self, call: str, direction: str, tensor: Any, ns: int, host: Any = None, asynchronous: bool = False) -> None:
        """`host`: the tensor on the host's side, where it can be pinned."""
        try:
            size = bytes_of(tensor) if tensor is not None else 0
            if size is None:
                return
            row = self.lines.row(call, direction)
            pinned = host is not None and _is_pinned(host)
            row[0] += 1
            row[1] += size
            row[2] += pinned
            row[3] += not (asynchronous and (pinned or direction == TO_HOST))
            row[4] += ns
        except Exception as error:
            self._device.fail(error)


def bytes_of(tensor: Any) -> int | None:
    """None for what is no tensor with numbers: a compiler's stand-in, a parameter without a shape yet."""
    try:
        size = tensor.numel() * tensor.element_size()
    except Exception:
        return None
    return size if type(size) is int else None


def _is_pinned(tensor: Any) -> bool:
    try:
        return bool(tensor.is_pinned())
    except Exception:  # a subclass that does not say
        return False
