"""CUDA: device times of spans, transfers and waits by line, memory of the allocator.

What lives here: the backend over `torch.cuda.Event`, what the recorder tells at the edges of spans, and the file each process
writes. It sleeps until the script itself initialises CUDA: asking whether there is a device would do that for it, and break
its forks. Invariant: no synchronisation is added; whatever fails switches all of this off for the process, with one note; the
script never notices. ROCm builds, untried, are not asked: they have host times."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ...record import memory
from ...store.devices import DEVICE_DIR
from ...store.writer import write_json
from .. import _patch as p
from .. import lines
from . import allocator, attribution, marks, transfers
from .marks import BETWEEN, Backend, Key, Wait

WRITE_NS = 3_000_000_000
EXIT_WAIT_S = 0.5
SHORT_COPY = 1 << 16  # bytes: microseconds


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


class Device:
    """All of it, in one process."""

    def __init__(self, patches: p.Patches, torch: Any, backend: Backend) -> None:
        self._recorder, self._torch, self._patches = patches.recorder, torch, patches
        self._captures = 0  # CUDA graphs being recorded, on any thread
        self.attribution = attribution.Attribution(backend, patches.note)
        self.is_off = self._finished = False
        self.now_ns = backend.now_ns
        self._thread = threading.local()
        self._began_ns = self._wrote_ns = self.now_ns()
        self._path = os.path.join(patches.session, DEVICE_DIR, f"{os.getpid()}.json") if patches.session else ""
        self.allocator = allocator.Allocator(torch, patches)
        self.transfers = transfers.Transfers(patches, torch, self)
        self._hook_streams()
        self._hook_captures()
        for module in (sys.modules[__name__], transfers, lines, allocator, attribution, marks):
            p.hide_from_dynamo(torch, module)
        memory.set_device(self)
        self._recorder.set_on_edge(self.edge)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_switch_off_later(self))
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
        if self._finished:
            return
        self._finished = True
        atexit.unregister(self.finish)
        self._recorder.set_on_edge(None)
        memory.set_device(None)
        if self.is_off:
            return
        try:
            until = time.monotonic() + EXIT_WAIT_S
            while not self.attribution.poll(closing=True) and time.monotonic() < until:
                time.sleep(0.005)
            self._write()
        except Exception as error:
            self.fail(error)
        self.is_off = True

    def _write(self) -> bool:
        if not self._path:
            return False
        self._wrote_ns = self.now_ns()
        numbers = self.attribution.numbers()
        numbers |= {"version": 1, "pid": os.getpid(), "name": self.allocator.device_name()}
        numbers |= {"lifetime_ns": self._wrote_ns - self._began_ns, "transfers": self.transfers.lines.numbers()}
        numbers |= self.allocator.numbers()
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            write_json(self._path, numbers, indent=None)
        except OSError:
            pass  # the disk is full or the session gone: the next time it may work
        return True

    # ---- spans ----

    def edge(self, key: Key, entered: int) -> int:
        """A span begins or ends, `key` is the innermost from here on; answers from when on to tell of the next."""
        if self.is_off:
            return attribution.NEVER
        try:
            if self._captures:
                return 0
            due = self.attribution.edge(key, bool(entered))
            now = self.now_ns()
            if self.allocator.look(now - self._began_ns) | (now - self._wrote_ns > WRITE_NS and self._write()):
                self.attribution.cost_ns += self.now_ns() - now
            return due
        except Exception as error:
            self.fail(error)
            return attribution.NEVER

    def memory_span_begins(self) -> None:
        """A span of the user's with `track_memory=True`."""
        self._read_memory(self.allocator.span_begins)

    def memory_span_ends(self) -> None:
        self._read_memory(self._note_peak)

    def _note_peak(self) -> None:
        self._recorder.note_gpu_peak(self.allocator.span_ends(self._recorder.here() or BETWEEN))

    def _read_memory(self, read: Callable[[], object]) -> None:
        if self.is_off:
            return
        self._recorder.settle()
        try:
            if not self._captures:
                read()
        except Exception as error:
            self.fail(error)
        finally:
            self._recorder.charge()

    # ---- waits ----

    def is_reading(self) -> bool:
        """Inside a copy or wait already? `tolist` may call `cpu`; that is one."""
        return getattr(self._thread, "waits", False)

    def wait_begins(self, everything: bool = False, blocks: bool = True, tensor: Any = None) -> tuple[int, Wait | None]:
        self._thread.waits = True
        try:
            wait = None
            if blocks and self.attribution.is_open and not self._captures:
                is_short = tensor is None or (transfers.bytes_of(tensor) or 0) <= SHORT_COPY
                wait = self.attribution.wait_begins(self._recorder.here() or BETWEEN, everything, is_short)
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
            if not self.is_off and not self._captures:
                self.attribution.switch(self._recorder.here() or BETWEEN)
        except Exception as error:
            self.fail(error)

    def _hook_captures(self) -> None:
        """While a CUDA graph is recorded, by whichever thread, an event would become part of it and a query an error."""
        graph = getattr(self._torch.cuda, "CUDAGraph", None)
        for name, after, change in (("capture_begin", False, 1), ("capture_end", True, -1)):
            original = getattr(graph, name, None)
            if original is not None:
                self._patches.put(graph, name, self._counting(original, after, change))

    def _counting(self, original: Any, after: bool, change: int) -> Any:
        @functools.wraps(original)
        def captures(*args: Any, **keywords: Any) -> Any:
            self._captures += 0 if after else change
            try:
                return original(*args, **keywords)
            except BaseException:
                self._captures -= 0 if after else change  # it never began
                raise
            finally:
                self._captures += change if after else 0

        return captures


def _switch_off_later(machine: Device) -> Callable[[], None]:
    """For a forked child. Such a hook cannot be taken back, so it keeps nothing alive."""
    found = weakref.ref(machine)

    def forked() -> None:
        alive = found()
        if alive is not None:
            alive.switch_off()

    return forked
