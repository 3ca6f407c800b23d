"""Copies between host and device, and waits for a device, by the line of the user's code that asks for them.

What lives here: the methods of tensors that copy or wait, and what counts as real (a tensor that lies on a device, or comes to
lie on one). Hooked only once the script has initialised CUDA. Invariant: the call is made exactly as it was made, once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from ...model.device import SYNC, TO_DEVICE, TO_HOST
from .. import _patch as p
from ..lines import Lines, Method

READS = ("item", "cpu", "tolist", "__bool__", "__float__", "__int__", "__index__")  # to the host: the host waits
MOVES = ("to", "cuda", "copy_")  # whichever way
WAITS = (("cuda", "synchronize", True), ("cuda.Stream", "synchronize", False), ("cuda.Event", "synchronize", False))


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
