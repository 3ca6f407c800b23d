"""CUDA: device times of phase-level calls, transfers and waits by line, memory of the allocator.

What lives here: the backend over `torch.cuda.Event`, what stands inside the hooks of marked calls, and the file each process
writes. It sleeps until the script itself initialises CUDA: asking whether there is a device would do that for it, and break
its forks. Invariant: no synchronisation is added; whatever fails switches all of this off for the process, with one note; the
script never notices. ROCm builds come by the same names."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ..record import device, memory
from ..record.marks import BETWEEN, Backend, Key, Wait
from ..store.device import DEVICE_DIR
from ..store.writer import write_json
from . import _patch as p
from . import allocator, transfers

WRITE_NS = 3_000_000_000
EXIT_WAIT_S = 0.5


def install(patches: p.Patches, torch: Any) -> None:
    """Begin when the script initialises CUDA; at once if it has."""
    state: dict[str, Any] = {"undone": False}

    def begin() -> None:
        if state["undone"] or "device" in state:
            return
        try:
            state["device"] = Device(patches, torch, CudaBackend(torch))
        except Exception as error:
            patches.note(f"device times could not be switched on ({type(error).__name__}: {error})")

    def end() -> None:
        state["undone"] = True
        if "device" in state:
            state["device"].finish()

    patches.later(end)
    torch.cuda._lazy_call(begin)


class CudaBackend:
    """`torch.cuda.Event` as the machine wants it. Streams are looked up once: `current_stream()` makes an object each time."""

    def __init__(self, torch: Any) -> None:
        self._cuda, self._c = torch.cuda, torch._C
        self._streams: dict[tuple[int, int], Any] = {}
        self.now_ns = time.perf_counter_ns

    def current(self) -> tuple[int, int]:
        device = self._c._cuda_getDevice()
        return device, self._c._cuda_getCurrentRawStream(device)

    def make_event(self) -> Any:
        return self._cuda.Event(enable_timing=True)

    def record(self, event: Any) -> None:
        key = self.current()
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) > 256:
                self._streams.clear()
            stream = self._streams[key] = self._cuda.current_stream()
        event.record(stream)

    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    def elapsed_ns(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) * 1e6

    def is_capturing(self) -> bool:
        """While a CUDA graph is recorded, an event would become part of it, and a query is an error."""
        return bool(self._cuda.is_current_stream_capturing())


class Device:
    """All of it, in one process."""

    def __init__(self, patches: p.Patches, torch: Any, backend: Backend) -> None:
        self._recorder, self._torch, self._patches = patches.recorder, torch, patches
        self._backend = backend
        self._capturing: Callable[[], bool] = getattr(backend, "is_capturing", lambda: False)
        self.attribution = device.Attribution(backend, patches.note)
        self.is_off = False
        self.now_ns = backend.now_ns
        self._thread = threading.local()
        self._began_ns = self._wrote_ns = self.now_ns()
        self._path = os.path.join(patches.session, DEVICE_DIR, f"{os.getpid()}.json") if patches.session else ""
        self.allocator = allocator.Allocator(torch, patches)
        self.transfers = transfers.Transfers(patches, torch, self)
        self._hook_streams()
        for module in (sys.modules[__name__], transfers, allocator, device):
            p.hide_from_dynamo(torch, module)
        p.set_mark(functools.partial(Marked, device=self))
        self._mark_optimizers()
        memory.set_device(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.switch_off)
        import atexit

        atexit.register(self.finish)

    # ---- life ----

    def switch_off(self) -> None:
        """In a forked child the parent's events mean nothing, and CUDA cannot be used at all."""
        self.is_off = True

    def fail(self, error: Exception) -> None:
        if not self.is_off:
            self.is_off = True
            self._patches.note(f"device times are switched off for this process ({type(error).__name__}: {error})")

    def finish(self) -> None:
        """The script ends: give the device a moment to reach the last marks, and write. Asked for, not waited for."""
        if self.is_off:
            return
        p.set_mark(None)
        memory.set_device(None)
        try:
            until = time.monotonic() + EXIT_WAIT_S
            while not self.attribution.poll(closing=True) and time.monotonic() < until:
                time.sleep(0.005)
            self._write()
        except Exception as error:
            self.fail(error)
        self.is_off = True

    def _write(self) -> None:
        if not self._path:
            return
        self._wrote_ns = self.now_ns()
        numbers = self.attribution.numbers()
        numbers |= {"version": 1, "pid": os.getpid(), "name": self.allocator.device_name()}
        numbers |= {"lifetime_ns": self._wrote_ns - self._began_ns, "transfers": self.transfers.lines.numbers()}
        numbers |= self.allocator.numbers()
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            write_json(self._path, numbers)
        except OSError:
            pass  # the disk is full or the session gone: the next time it may work

    # ---- spans ----

    def enter(self, key: Key | None = None) -> bool:
        """A marked call begins on this thread; False where it is inside another, or nothing is measured."""
        if getattr(self._thread, "inside", False) or self._is_asleep():
            return False
        recorder = self._recorder
        recorder.settle()
        try:
            if self._capturing():
                return False
            self._thread.inside = True
            self._thread.began_ns = self.now_ns()
            self.attribution.begin(key or recorder.here() or BETWEEN)
        except Exception as error:
            self.fail(error)
        finally:
            recorder.charge()
        return True

    def leave(self) -> None:
        recorder = self._recorder
        recorder.settle()
        try:
            self._thread.inside = False
            capturing = self._capturing()
            self.attribution.end(marked=not capturing)
            if not self.is_off and not capturing:
                now = self.now_ns()
                self.allocator.look(now - self._began_ns, now - self._thread.began_ns)
                if now - self._wrote_ns > WRITE_NS:
                    self._write()
        except Exception as error:
            self.fail(error)
        finally:
            recorder.charge()

    def user_span_begins(self) -> None:
        """A span of the user's with `track_memory=True`: marked where a window is open, its memory always read."""
        if self.is_off:
            return
        self._recorder.settle()
        try:
            if not self._capturing():
                self.allocator.span_begins()
                self.attribution.begin(self._recorder.here() or BETWEEN)
        except Exception as error:
            self.fail(error)
        finally:
            self._recorder.charge()

    def user_span_ends(self) -> None:
        if self.is_off:
            return
        self._recorder.settle()
        try:
            if not self._capturing():
                self.attribution.end()
                self.allocator.span_ends(self._recorder.here() or BETWEEN)
        except Exception as error:
            self.fail(error)
        finally:
            self._recorder.charge()

    def _is_asleep(self) -> bool:
        return self.is_off or self.attribution.is_asleep()

    # ---- waits ----

    def is_reading(self) -> bool:
        """Inside a copy or wait already? `tolist` may call `cpu`; that is one."""
        return getattr(self._thread, "waits", False)

    def wait_begins(self, everything: bool = False, blocks: bool = True) -> tuple[int, Wait | None]:
        self._thread.waits = True
        try:
            wait = None
            if blocks and self.attribution.is_open and not self._capturing():
                wait = self.attribution.wait_begins(self._recorder.here() or BETWEEN, everything)
        except Exception as error:
            self.fail(error)
        return self.now_ns(), wait

    def wait_ends(self, begin_ns: int, wait: Wait | None) -> int:
        """Answers how long it took."""
        ns = self.now_ns() - begin_ns
        self._thread.waits = False
        if wait is not None:
            self.attribution.wait_ends(wait)
        return ns

    # ---- hooks ----

    def _hook_streams(self) -> None:
        """`with torch.cuda.stream(s)`: what is queued on each side of the change is of its own stream."""
        context = self._torch.cuda.StreamContext
        switch = self._switch
        enter, leave = context.__enter__, context.__exit__

        @functools.wraps(enter)
        def entered(self: Any) -> Any:
            result = enter(self)
            switch()
            return result

        @functools.wraps(leave)
        def left(self: Any, *args: Any) -> Any:
            switch()
            return leave(self, *args)

        self._patches.put(context, "__enter__", entered)
        self._patches.put(context, "__exit__", left)

    def _switch(self) -> None:
        try:
            if not self.is_off and not self._capturing():
                self.attribution.switch()
        except Exception as error:
            self.fail(error)

    def _mark_optimizers(self) -> None:
        """Those that exist: their classes' `step` was hooked when the first of each was made."""
        waiting = [self._torch.optim.Optimizer]
        while waiting:
            kind = waiting.pop()
            waiting += kind.__subclasses__()
            step = vars(kind).get("step")
            if p.is_ours(step):
                after = getattr(step, "after_step", None)
                made = self._patches.hooked(p.unhooked(step), p.OPTIMIZER, after)
                made.hooked, made.after_step = True, after
                self._patches.put(kind, "step", made)


class Marked:
    """Stands between a hook and its function, and marks the outermost calls. Pickled as the function."""

    def __init__(self, function: Any, device: Device) -> None:
        functools.update_wrapper(self, function)
        self.unmarked = function
        self._device = device

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        device = self._device
        if not device.enter():
            return self.unmarked(*args, **keywords)
        try:
            return self.unmarked(*args, **keywords)
        finally:
            device.leave()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("unmarked", "_device"):
            raise AttributeError(name)
        return getattr(self.unmarked, name)

    def __reduce__(self) -> Any:
        return _same, (self.unmarked,)


def _same(function: Any) -> Any:
    return function
