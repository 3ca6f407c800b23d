"""A device that is not there: work is queued with how long it takes, and done one after the other while the host goes on.

For the golden sessions of causes that need a GPU (tests/golden.py). Tensors of `put` say that they lie on it; reading one waits
until everything queued is done; copying to it takes a time for every byte. HotLoop's own hooks for CUDA watch it, with events
that know when the queue reaches them. Bare, without HotLoop, it only waits.
"""

from __future__ import annotations

import ctypes
import time
from types import SimpleNamespace
from typing import Any

import torch

_C = ctypes.CDLL(None)
_BYTES_A_US = 2000  # of a copy from ordinary memory
_free_ns = 0  # when all that is queued is done


def queue(us: float) -> None:
    """Work for the device; the host does not wait."""
    global _free_ns
    _free_ns = max(_free_ns, time.perf_counter_ns()) + round(us * 1000)


def _wait(us: float) -> None:
    """As in a driver: in C, and nothing that HotLoop knows as a wait."""
    if us >= 1:
        _C.usleep(round(us))


def _settle() -> None:
    _wait((_free_ns - time.perf_counter_ns()) / 1000)


class OnDevice(torch.Tensor):
    is_cuda = True

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if name == "copy_":
                _settle()
                _wait(args[0].numel() * args[0].element_size() / _BYTES_A_US)
            elif name in ("item", "tolist", "__bool__", "__float__", "__int__"):
                _settle()
            result = function(*args, **(kwargs or {}))
        moves = isinstance(result, torch.Tensor) and name not in ("cpu", "numpy", "as_subclass")
        return result.as_subclass(cls) if moves else result


def put(tensor: torch.Tensor) -> OnDevice:
    """A tensor that is there from the beginning; nothing is copied."""
    return tensor.detach().as_subclass(OnDevice)


class _Backend:
    """Events that keep the instant at which the queue gets to them."""

    now_ns = staticmethod(time.perf_counter_ns)

    def current(self) -> tuple[int, int]:
        return 0, 0

    def make_event(self) -> dict[str, int]:
        return {}

    def record(self, event: dict[str, int]) -> None:
        event["at"] = max(_free_ns, time.perf_counter_ns())

    def is_done(self, event: dict[str, int]) -> bool:
        return time.perf_counter_ns() >= event["at"]

    def elapsed_ns(self, first: dict[str, int], last: dict[str, int]) -> float:
        return float(last["at"] - first["at"])


def _make_torch() -> Any:
    """torch, with another torch.cuda."""
    empty = {name: {"all": {"current": 0, "peak": 0}} for name in ("allocated_bytes", "reserved_bytes")}
    memory = SimpleNamespace(
        memory_stats_as_nested_dict=lambda device=None: empty, reset_peak_memory_stats=lambda device=None: None
    )
    cuda = SimpleNamespace(
        StreamContext=type("StreamContext", (), {"__enter__": lambda self: self, "__exit__": lambda self, *_: None}),
        Stream=type("Stream", (), {"synchronize": lambda self: None}),
        Event=type("Event", (), {"synchronize": lambda self: None}),
        synchronize=lambda device=None: _settle(), memory=memory, get_device_name=lambda: "made up",
        reset_peak_memory_stats=memory.reset_peak_memory_stats,
        _utils=SimpleNamespace(_get_device_index=lambda device, optional: 0),
    )  # fmt: skip
    c = SimpleNamespace(
        _cuda_memoryStats=lambda device: empty, _cuda_getDevice=lambda: 0, _cuda_resetPeakMemoryStats=lambda device: None,
        _dynamo=torch._C._dynamo,
    )  # fmt: skip
    return SimpleNamespace(Tensor=torch.Tensor, dtype=torch.dtype, optim=torch.optim, cuda=cuda, _C=c, __file__=torch.__file__)


def begin() -> None:
    """What initialising CUDA is: from here on HotLoop looks at the device, where it runs."""
    from hotloop import api
    from hotloop.integrations import _patch, reads
    from hotloop.integrations.device import cuda
    from hotloop.record.backend import recorder

    session = api.get_profiler().path
    if session is None:
        return
    reads.FIRST_NS = 1 << 62  # reads of the CPU's tensors are not counted beside a device
    cuda.Device(_patch.Patches(recorder, print, str(session)), _make_torch(), _Backend())
