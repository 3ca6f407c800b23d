"""After the script has ended: what its own networks and optimizers cost at other sizes.

What lives here: what the hooks keep for it while training runs (a few networks and optimizers, with the shapes they were called
with), and the measuring, which is the last of all exit handlers. Its answer is `probes.json` in the session.

Rules. Nothing is measured while the script runs, nor after it failed. Copies are measured, never the script's own objects; no
environment is stepped; a file, socket or process that a measurement wants ends it (an audit hook). Random numbers and the
exit code stay as they were. It takes MOST_S seconds at most, and no memory beyond MOST_MEMORY of the run's peak. What is
compiled, scripted, on a device or part of a process group is left out. Whatever fails is a note. Standard library and the
script's torch only.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..model.phase import COLLECT, LEARN
from ..store.probes import PROBES_FILE, VERSION
from ..store.writer import write_json

MOST_S = 2.7  # of three that are promised: writing and leaving take their part
MOST_MEMORY = 0.05  # of the run's peak, for copies and for what they compute on
MOST_HELD = 6  # networks and ways to call them
MOST_BYTES = 256 << 20  # of a network that is held; a larger one is left out
POINT_S = 0.05  # for one size
FIRST_MOST_S = 0.4  # a call that takes longer is measured once and at no other size
TIMES = (2, 4, 8, 16, 32, 64)
_FORBIDDEN = ("open", "socket", "subprocess", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.remove",
              "os.rename", "os.mkdir", "shutil", "ctypes.dlopen", "urllib", "ftplib", "smtplib", "sqlite3")  # fmt: skip


class AbortedError(Exception):
    """A measurement wanted what it must not have."""


class Call:
    """One way in which a network was called."""

    def __init__(self, module: Any, method: str, phase: int) -> None:
        self.module, self.method, self.phase = module, method, phase
        self.arguments: Any = None  # of the latest call: shapes and number types
        self.rows = 0
        self.seen = self.seen_rows = self.with_grad = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "network": type(self.module).__name__, "method": self.method, "phase": self.phase, "rows": self.rows,
            "seen": self.seen, "mean_rows": round(self.seen_rows / max(1, self.seen), 2),
            "grad": self.with_grad > self.seen / 2,
        }  # fmt: skip


class Held:
    """What is kept of a run for the end of it."""

    def __init__(self) -> None:
        self.on = False
        self.session = ""
        self.calls: dict[tuple[int, str, int], Call] = {}
        self.optimizers: dict[int, tuple[Any, int]] = {}  # by id: it, and how often it was seen
        self._refused: set[int] = set()

    def saw_call(self, torch: Any, method: str, args: tuple[Any, ...], phase: int, has_grad: bool) -> None:
        """A few calls in a hundred come by."""
        if phase not in (COLLECT, LEARN):  # of the first call nobody knows yet
            return
        module = args[0]
        key = id(module), method, phase
        call = self.calls.get(key)
        if call is None:
            if not self.on or len(self.calls) >= MOST_HELD or id(module) in self._refused or not self._may_hold(torch, module):
                return
            call = self.calls[key] = Call(module, method, phase)
        rows = _rows(torch, args[1:])
        if rows:
            call.arguments, call.rows = _describe(torch, args[1:]), rows
            call.seen += 1
            call.seen_rows += rows
            call.with_grad += has_grad

    def _may_hold(self, torch: Any, module: Any) -> bool:
        size = 0
        compiled = type(module).__name__ in ("OptimizedModule", "DistributedDataParallel", "FullyShardedDataParallel")
        for parameter in module.parameters() if not compiled and not isinstance(module, torch.jit.ScriptModule) else ():
            size += parameter.numel() * parameter.element_size()
            if parameter.device.type != "cpu":
                size = MOST_BYTES
        if compiled or not 0 < size < MOST_BYTES:
            self._refused.add(id(module))
            return False
        return True

    def saw_update(self, optimizer: Any) -> None:
        if self.on and (id(optimizer) in self.optimizers or len(self.optimizers) < 3):
            self.optimizers[id(optimizer)] = optimizer, self.optimizers.get(id(optimizer), (None, 0))[1] + 1


HELD = Held()


def rows_of(tensor: Any) -> int:
    """How many rows a network gets: a single vector of numbers is one, whose batch was left out."""
    return 0 if not tensor.dim() else 1 if tensor.dim() == 1 and tensor.is_floating_point() else tensor.shape[0]


def _rows(torch: Any, args: tuple[Any, ...]) -> int:
    """Of the first tensor, in a container or not."""
    for value in args:
        if isinstance(value, torch.Tensor):
            return rows_of(value)
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, (tuple, list)) and value:
            return _rows(torch, tuple(value))
    return 0


def _describe(torch: Any, value: Any) -> Any:
    """Shapes in place of tensors; what is neither stands for itself if it is plain, else there is nothing to call with."""
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape), value.dtype)
    if isinstance(value, dict) and type(value) is dict:
        return {key: _describe(torch, item) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_describe(torch, item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return ("plain", value)
    raise TypeError(f"called with a {type(value).__name__}")


def _shapes(described: Any) -> Iterator[tuple[int, ...]]:
    """Of the tensors in what `_describe` says, in their order."""
    if isinstance(described, tuple) and len(described) == 3 and described[0] == "tensor":
        yield described[1]
    elif isinstance(described, (dict, list, tuple)):
        for item in described.values() if isinstance(described, dict) else described:
            yield from _shapes(item)


# ---- after the end ----

_guarding = False
_guard_set = False


def _guard(event: str, args: tuple[Any, ...]) -> None:
    if _guarding and event.startswith(_FORBIDDEN):
        raise AbortedError(f"it wanted {event}")


@contextmanager
def _guarded() -> Iterator[None]:
    global _guarding, _guard_set
    if not _guard_set:
        sys.addaudithook(_guard)
        _guard_set = True
    _guarding = True
    try:
        yield
    finally:
        _guarding = False


def run() -> None:
    """The last exit handler. Never raises; Ctrl-C ends it."""
    held, torch = HELD, sys.modules.get("torch")
    calls, optimizers = list(held.calls.values()), [o for o, _ in held.optimizers.values()]
    if not held.on or torch is None or not (calls or optimizers) or _has_failed() or _is_distributed(torch):
        return
    held.on = False
    begin = time.perf_counter()
    probe = _Probe(torch, begin + MOST_S)
    try:
        probe.measure(calls, optimizers)
    except BaseException as error:
        probe.notes.append(f"ended early ({type(error).__name__}: {error})"[:200])
    found = {
        "version": VERSION, "pid": os.getpid(), "seconds": round(time.perf_counter() - begin, 3), "threads": probe.threads,
        "curves": probe.curves, "optimizers": probe.optimizers, "notes": probe.notes[:50],
    }  # fmt: skip
    held.calls.clear()
    held.optimizers.clear()
    try:
        path = os.path.join(held.session, PROBES_FILE)
        if not os.path.exists(path):  # the first of several learners
            write_json(path, found, indent=None)
    except BaseException:
        pass  # the disk is full, or the session gone


def _has_failed() -> bool:
    """Did the script end by an exception? Ctrl-C counts as a way to end it."""
    kind = getattr(sys, "last_type", None)
    return kind is not None and not issubclass(kind, (KeyboardInterrupt, SystemExit))


def _is_distributed(torch: Any) -> bool:
    distributed = getattr(torch, "distributed", None)
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


class _Probe:
    def __init__(self, torch: Any, until: float) -> None:
        self.torch, self.until = torch, until
        self.threads = torch.get_num_threads()
        self.curves: list[dict[str, Any]] = []
        self.optimizers: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self._peak = _peak_bytes()
        self._deepcopy: Any = None
        self._quantiles: Any = None

    def measure(self, calls: list[Call], optimizers: list[Any]) -> None:
        import copy
        import random
        import statistics  # all of this now: later, a file is forbidden
        import warnings

        self._deepcopy, self._quantiles = copy.deepcopy, statistics.quantiles
        torch, numpy = self.torch, sys.modules.get("numpy")
        states = torch.get_rng_state(), random.getstate(), numpy.random.get_state() if numpy else None
        grad = torch.is_grad_enabled()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # the most called first: time may run out
                for call in sorted(calls, key=lambda c: -c.seen):
                    self._try(f"{type(call.module).__name__}.{call.method or 'forward'}", functools.partial(self._curve, call))
                for optimizer in optimizers:
                    self._try(type(optimizer).__name__, functools.partial(self._optimizer, optimizer))
        finally:
            torch.set_grad_enabled(grad)
            torch.set_num_threads(self.threads)
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            if numpy and states[2] is not None:
                numpy.random.set_state(states[2])

    def _try(self, name: str, action: Callable[[], None]) -> None:
        if time.perf_counter() >= self.until:
            self.notes.append(f"{name}: there was no time left")
            return
        try:
            with _guarded():
                action()
        except Exception as error:
            self.notes.append(f"{name}: {type(error).__name__}: {error}"[:200])

    def _copy(self, original: Any) -> Any:
        """Torch refuses to copy results of a computation, and networks keep some (the latest distribution): plain ones do."""
        kind = self.torch.Tensor
        copies = kind.__deepcopy__
        kind.__deepcopy__ = lambda x, memo: copies(x, memo) if x.is_leaf else memo.setdefault(id(x), x.detach().clone())
        try:
            return self._deepcopy(original)
        finally:
            kind.__deepcopy__ = copies

    # ---- networks ----

    def _curve(self, call: Call) -> None:
        """Cost against rows, as it was called; learning with its backward pass."""
        torch = self.torch
        if call.arguments is None:
            return
        size = sum(p.numel() * p.element_size() for p in call.module.parameters())
        if 3 * size > MOST_MEMORY * self._peak:
            raise MemoryError(f"a copy of {size >> 20} MB is too large beside a peak of {self._peak >> 20} MB")
        module = self._copy(call.module)
        function = getattr(module, call.method) if call.method else module
        grad = call.as_dict()["grad"]
        row: dict[str, Any] = call.as_dict() | {"parameters": size, "points": [], "variants": {}}
        rows, axis = call.rows, 0
        for times in (1, *TIMES) if call.phase != LEARN else (1, 4, 16):
            try:
                point = self._point(call, function, times, axis)
            except (RuntimeError, ValueError, IndexError):
                axis = 1 - axis  # networks with a state have their rows second there
                point = self._point(call, function, times, axis)
            row["points"].append([rows * times, *point])
            if times == 1:
                self.curves.append(row)  # now: at a larger size it may fail
            if point[0] > FIRST_MOST_S * 1e9 or self._is_full():
                break
        if row["points"]:
            made = self._arguments(call.arguments, rows, 1, axis)
            if grad and call.phase != LEARN:
                row["variants"]["no_grad"] = self._time(lambda: self._call(function, made, False))
            if self.threads > 1:
                torch.set_num_threads(1)
                row["variants"]["threads=1"] = self._point(call, function, 1, axis)
                torch.set_num_threads(self.threads)

    def _point(self, call: Call, function: Any, times: int, axis: int) -> list[float]:
        made, grad = self._arguments(call.arguments, call.rows, times, axis), call.as_dict()["grad"]
        return self._time(lambda: self._call(function, made, grad, call.phase == LEARN))

    def _call(self, function: Any, args: tuple[Any, ...], grad: bool, learns: bool = False) -> None:
        torch = self.torch
        with torch.enable_grad() if grad else torch.no_grad():
            result = function(*args)
            if grad and learns:
                outputs = [x for x in _flat(torch, result) if x.requires_grad]
                if outputs:
                    sum(x.float().mean() for x in outputs).backward()

    def _arguments(self, described: Any, rows: int, times: int, axis: int) -> Any:
        torch = self.torch
        single = rows == 1 and len(next(_shapes(described), ())) == 1  # vectors without their batch

        def make(what: Any, inner: bool) -> Any:
            if isinstance(what, dict):
                return {key: make(item, True) for key, item in what.items()}
            if len(what) == 3 and what[0] == "tensor":
                shape = list(what[1])
                if single and len(shape) == 1 and times > 1:
                    shape = [1, *shape]
                at = axis if inner and len(shape) > axis and shape[axis] == rows else 0
                if shape and shape[at] == rows:
                    shape[at] *= times
                dtype = what[2]
                return torch.rand(shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
            if len(what) == 2 and what[0] == "plain":
                return what[1]
            return type(what)(make(item, True) for item in what)

        return tuple(make(item, isinstance(item, (list, dict)) or item[0] not in ("tensor", "plain")) for item in described)

    # ---- optimizers ----

    def _optimizer(self, optimizer: Any) -> None:
        torch = self.torch
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        size = sum(p.numel() * p.element_size() for p in tensors)
        if any(p.device.type != "cpu" for p in tensors) or 6 * size > MOST_MEMORY * self._peak:
            return
        mine = self._copy(optimizer)
        for group in mine.param_groups:
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        row = {"name": type(optimizer).__name__, "tensors": len(tensors), "bytes": size, "variants": {}}
        row["ns"] = self._time(mine.step)
        groups = mine.param_groups
        before = [(group.get("foreach"), group.get("fused")) for group in groups]
        for name, foreach, fused in (("foreach", True, None), ("fused", None, True)):
            if "foreach" not in groups[0] or any(pair == (foreach, fused) for pair in before):
                continue
            for group in groups:
                group["foreach"], group["fused"] = foreach, fused
            try:
                row["variants"][name] = self._time(mine.step)
            except (RuntimeError, TypeError, ValueError) as error:
                self.notes.append(f"{row['name']}, {name}: {error}"[:200])
            for group, (foreach_before, fused_before) in zip(groups, before, strict=True):
                group["foreach"], group["fused"] = foreach_before, fused_before
        self.optimizers.append(row)

    # ---- time and memory ----

    def _time(self, action: Callable[[], Any]) -> list[float]:
        """Median nanoseconds of a call, and half of its middle half; by as many calls as fit."""
        clock = time.perf_counter_ns
        begin = clock()
        action()
        first = clock() - begin
        if first > FIRST_MOST_S * 1e9 or time.perf_counter() >= self.until:
            return [float(first), float(first)]
        action()
        taken: list[int] = []
        end = clock() + int(POINT_S * 1e9)
        while len(taken) < 3 or (clock() < end and len(taken) < 400):
            begin = clock()
            action()
            taken.append(clock() - begin)
        low, middle, high = self._quantiles(taken, n=4)
        return [middle, (high - low) / 2]

    def _is_full(self) -> bool:
        return time.perf_counter() >= self.until or _peak_bytes() > (1 + MOST_MEMORY) * self._peak


def _flat(torch: Any, value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for item in value for x in _flat(torch, item)] if isinstance(value, (tuple, list)) else []


def _peak_bytes() -> int:
    try:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except (ImportError, OSError):
        return 1 << 62
