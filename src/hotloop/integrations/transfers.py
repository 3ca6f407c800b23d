"""Copies between host and device, and waits for a device, by the line of the user's code that asks for them.

What lives here: the methods of tensors that copy or wait, what counts as real (a tensor that lies on a device, or comes to lie
on one), and the table of lines. Hooked only once the script has initialised CUDA. Invariant: the call is made exactly as it
was made, once; the table is bounded."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..model.device import SYNC, TO_DEVICE, TO_HOST
from . import _patch as p

READS = ("item", "cpu", "tolist", "__bool__", "__float__", "__int__", "__index__")  # to the host: the host waits
MOVES = ("to", "cuda", "copy_")  # whichever way
WAITS = (("cuda", "synchronize", True), ("cuda.Stream", "synchronize", False), ("cuda.Event", "synchronize", False))
MOST_LINES = 500
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", f"{os.sep}lib{os.sep}python3")


class Lines:
    """Per line and kind of call: how often, how much, how long."""

    def __init__(self, torch_folder: str) -> None:
        self._skipped = (torch_folder, _OURS, "<")
        self.rows: dict[tuple[str, int, str, str, str], list[int]] = {}

    def add(self, call: str, direction: str, size: int, pinned: bool, blocking: bool, ns: int) -> None:
        key = (*self._place(), call, direction)
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= MOST_LINES:
                key = ("", 0, "(more lines)", call, direction)
            row = self.rows.setdefault(key, [0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += size
        row[2] += pinned
        row[3] += blocking
        row[4] += ns

    def numbers(self) -> list[dict[str, Any]]:
        return [
            {"file": file, "line": line, "function": function, "call": call, "direction": direction, "count": row[0],
             "bytes": row[1], "pinned": row[2], "blocking": row[3], "ns": row[4]}
            for (file, line, function, call, direction), row in list(self.rows.items())
        ]  # fmt: skip

    def _place(self) -> tuple[str, int, str]:
        """The innermost line of the user's own code; without one, of whatever is not torch's or ours."""
        frame: FrameType | None = sys._getframe(2)
        first: FrameType | None = None
        for _ in range(60):
            if frame is None:
                break
            file = frame.f_code.co_filename
            if not file.startswith(self._skipped):
                first = first or frame
                if not any(part in file for part in _LIBRARIES):
                    return file, frame.f_lineno, frame.f_code.co_qualname
            frame = frame.f_back
        return (first.f_code.co_filename, first.f_lineno, first.f_code.co_qualname) if first is not None else ("", 0, "")


class Transfers:
    """The hooks. `device` is told when the host begins to wait and when it has waited."""

    def __init__(self, patches: p.Patches, torch: Any, device: Any) -> None:
        self._torch, self._device = torch, device
        self.lines = Lines(os.path.dirname(torch.__file__) + os.sep)
        tensor = torch.Tensor
        for name in READS:
            if hasattr(tensor, name):
                patches.put(tensor, name, self._reading(getattr(tensor, name), name.strip("_")))
        for name in MOVES:
            patches.put(tensor, name, self._moving(getattr(tensor, name), name))
        for path, name, everything in WAITS:
            owner = functools.reduce(getattr, path.split("."), torch)
            patches.put(owner, name, self._waiting(getattr(owner, name), name, everything))

    def _reading(self, function: Callable[..., Any], call: str) -> Callable[..., Any]:
        device, direction = self._device, TO_HOST

        @functools.wraps(function)
        def read(tensor: Any, *args: Any, **keywords: Any) -> Any:
            if device.is_off or not tensor.is_cuda or device.is_reading():
                return function(tensor, *args, **keywords)
            begin, wait = device.wait_begins()
            try:
                return function(tensor, *args, **keywords)
            finally:
                ns = device.wait_ends(begin, wait)
                self._note(call, direction, tensor, False, True, ns)

        return read

    def _moving(self, function: Callable[..., Any], call: str) -> Callable[..., Any]:
        """`to`, `cuda` and `copy_`: which way is known from both ends. A copy to the host waits; one to the device does where
        the memory is not pinned, or nobody asked it not to."""
        device = self._device

        @functools.wraps(function)
        def move(tensor: Any, *args: Any, **keywords: Any) -> Any:
            if device.is_off or device.is_reading():
                return function(tensor, *args, **keywords)
            source = args[0] if call == "copy_" and args else tensor
            was = getattr(source, "is_cuda", None)
            asynchronous = bool(keywords.get("non_blocking", len(args) > 1 and call == "copy_" and args[1]))
            begin, wait = device.wait_begins(blocks=bool(was) and not asynchronous)
            result = None
            try:
                result = function(tensor, *args, **keywords)
                return result
            finally:
                ns = device.wait_ends(begin, wait)
                now = getattr(tensor if call == "copy_" else result, "is_cuda", None)
                if result is not None and was is not None and now is not None and now != was:
                    pinned = _is_pinned(result if was else source)
                    self._note(call, TO_HOST if was else TO_DEVICE, source, pinned, not (asynchronous and (pinned or was)), ns)

        return move

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
                self._note(call, SYNC, None, False, True, ns)

        return wait_for

    def _note(self, call: str, direction: str, tensor: Any, pinned: bool, blocking: bool, ns: int) -> None:
        try:
            size = tensor.numel() * tensor.element_size() if tensor is not None else 0
            self.lines.add(call, direction, size, pinned, blocking, ns)
        except Exception as error:
            self._device.fail(error)


def _is_pinned(tensor: Any) -> bool:
    try:
        return bool(tensor.is_pinned())
    except Exception:  # a subclass that does not say
        return False
