"""The deep window: `torch.profiler` over a few iterations, with our spans written into its trace.

What lives here: when it starts and stops, and the file. Iterations are those the recorder closes: `step()` tells at once;
automatic ones are noticed at the next optimizer step, so the window is as many whole cycles, from update to update. Our spans
are taken from the recorder's own timeline after each iteration rather than mirrored one by one with `record_function`, which
costs 6 µs a span and cannot see spans of the user's own. Invariant: whatever fails ends the window with a note; training goes
on."""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from typing import Any

from ..model.trace import TraceSettings
from ..store import schema
from ..store.spans import Span, read_spans

_EVENTS = b'"traceEvents": ['
_BASE = b'"baseTimeNanoseconds": '


class DeepWindow:
    """One window in one process."""

    def __init__(self, recorder: Any, torch: Any, session: str, settings: TraceSettings, note: Callable[[str], None]) -> None:
        self._recorder, self._torch, self._note = recorder, torch, note
        self._path = os.path.join(session, settings.file)
        self._settings = settings
        self._profiler: Any = None
        self._left = max(1, settings.wait_steps)  # the first iteration is known only once it has ended
        self._active = 0  # iterations kept so far
        self._since_ns = 0
        self._spans: dict[Span, None] = {}
        self._complete = True
        self._clock = (0, 0)  # the same instant on the wall clock and on the recorder's
        self._closed = -1
        self.done = not settings.enabled

    # ---- iterations ----

    def step(self, iterations: int, env_steps: int = 0) -> None:
        """An iteration has ended."""
        if not self.done:
            try:
                self._step()
            except Exception as error:
                self._fail(error)

    def poll(self) -> None:
        """Has the recorder closed an iteration since the last time?"""
        if self.done:
            return
        try:
            closed = self._iterations()
            ended = closed != self._closed and self._closed >= 0
            self._closed = closed
            if ended:
                self._step()
        except Exception as error:
            self._fail(error)

    def finish(self) -> None:
        """The script ends: what there is of the window is written."""
        if not self.done and self._profiler is not None:
            try:
                if self._since_ns:
                    self._take_spans()
                self._profiler.stop()
                if not self.done:
                    self._note("the script ended before the deep window did; --torch-trace with fewer iterations fits into it")
            except Exception as error:
                self._fail(error)
        elif not self.done:
            self._note("the deep window never began: too few iterations, or none; call hotloop.step() or use a smaller wait=")
        self._end()

    def _step(self) -> None:
        settings = self._settings
        if self._profiler is None:
            self._left -= 1
            if self._left <= 0:
                self._begin()
            return
        if self._since_ns:
            self._take_spans()
        self._profiler.step()  # at the last one this calls _save
        if not self.done:
            self._active += 1
            if self._active == settings.warmup_steps:
                self._since_ns = self._recorder.now()

    def _iterations(self) -> int:
        """From the recording's own header, mapped or not: eight bytes. Opened anew each time: a kept descriptor could be closed
        by the script, and its number mean another file."""
        path = self._recorder.shard()
        if path is None:
            return -1
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(struct.unpack("<Q", os.pread(fd, 8, schema.H_ITERATIONS * 8))[0])
        finally:
            os.close(fd)

    # ---- the profiler ----

    def _begin(self) -> None:
        profiler, settings = self._torch.profiler, self._settings
        action, last = profiler.ProfilerAction, settings.warmup_steps + settings.active_steps - 1

        def schedule(step: int) -> Any:
            if step < settings.warmup_steps:
                return action.WARMUP
            return action.RECORD if step < last else action.RECORD_AND_SAVE if step == last else action.NONE

        activities = [profiler.ProfilerActivity.CPU]
        if self._torch.cuda.is_initialized():
            activities.append(profiler.ProfilerActivity.CUDA)
        self._profiler = profiler.profile(
            activities=activities, schedule=schedule, record_shapes=settings.record_shapes, on_trace_ready=self._save
        )
        self._profiler.start()
        if not settings.warmup_steps:
            self._since_ns = self._recorder.now()

    def _take_spans(self) -> None:
        """Before the recorder's ring forgets them."""
        spans, complete = read_spans(self._recorder.snapshot(), self._since_ns)
        self._spans |= dict.fromkeys(spans)
        self._complete = self._complete and complete
        self._since_ns = self._recorder.now()

    def _save(self, profiler: Any) -> None:
        self._clock = (time.time_ns(), self._recorder.now())
        draft = self._path + ".part"
        raw = self._path + ".part.json"  # the exporter goes by the name
        try:
            profiler.export_chrome_trace(raw)
            insert_spans(raw, draft, list(self._spans), self._clock, self._settings.gzip)
            os.replace(draft, self._path)
        finally:
            for path in (raw, draft):
                if os.path.exists(path):
                    os.unlink(path)
        if not self._complete:
            self._note("the deep window holds more spans than the recorder keeps: the first of them are missing in the trace")
        self._end()

    def _fail(self, error: Exception) -> None:
        self._note(f"the deep window failed ({type(error).__name__}: {error})")
        profiler, self._profiler = self._profiler, None
        self._end()
        try:
            if profiler is not None:
                profiler.on_trace_ready = None
                profiler.stop()
        except Exception:
            pass  # it was that which failed

    def _end(self) -> None:
        self.done = True
        self._spans = {}


def insert_spans(source: str, target: str, spans: list[Span], clock: tuple[int, int], gzip: bool) -> None:
    """Copy a Chrome trace and put our spans first. Not parsed: it may have hundreds of megabytes."""
    if gzip:
        import gzip as zipper

        opened: Any = zipper.open(target, "wb", compresslevel=5)  # noqa: SIM115  closed below
    else:
        opened = open(target, "wb")  # noqa: SIM115
    with open(source, "rb") as file, opened as out:
        head = file.read(1 << 20)
        at = head.find(_EVENTS)
        if at < 0:
            raise ValueError("this version of torch writes traces in a shape we do not know")
        base_at = head.find(_BASE, 0, at)
        base = int(head[base_at + len(_BASE) : head.index(b",", base_at)]) if base_at >= 0 else 0
        out.write(head[: at + len(_EVENTS)])
        wall_ns, own_ns = clock
        for label, tid, start_ns, dur_ns in spans:
            event = {
                "ph": "X", "cat": "hotloop", "name": label, "pid": os.getpid(), "tid": tid,
                "ts": (start_ns - own_ns + wall_ns - base) / 1000, "dur": dur_ns / 1000,
            }  # fmt: skip
            out.write(json.dumps(event).encode() + b",\n")
        out.write(head[at + len(_EVENTS) :])
        shutil.copyfileobj(file, out, 1 << 20)
