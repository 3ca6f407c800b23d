"""Reads of tensors on the CPU, by line: `.item()`, `.numpy()`, `float()` and the like, counted in short windows.

Such a call costs a microsecond or so; counting every one would cost as much again. What lives here: windows of some
milliseconds, at times that double, in which the methods of tensors are exchanged for counting ones. Who may touch it: the
torch integration, which says when a model was called. Invariant: outside a window everything is as it was; at most a few
dozen exchanges in a whole run, because each makes Python forget what it knows of the class.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from typing import Any

from ..model.device import ON_HOST
from ..store.devices import DEVICE_DIR
from ..store.writer import write_json
from . import _patch as p
from .lines import Lines, Method

CALLS = ("item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__")
WINDOW_NS = 20_000_000
FIRST_NS = 500_000_000  # after the first model call: not the start-up
MOST_WINDOWS = 16


class Reads:
    """The windows of one process."""

    def __init__(self, patches: p.Patches, torch: Any) -> None:
        self._tensor, self._part = torch.Tensor, patches.part("traced")  # a compiler must not see them
        self._path = os.path.join(patches.session, DEVICE_DIR, f"{os.getpid()}.json") if patches.session else ""
        self.lines = Lines(os.path.dirname(torch.__file__) + os.sep)
        self._now: Callable[[], int] = time.perf_counter_ns
        self._began_ns = self._due_ns = self._opened_ns = 0
        self._measured_ns = 0
        self._turns = self._counted = 0  # all, and those in windows: by these the counts are scaled, since counting takes time
        self.windows = 0
        self._pid = os.getpid()
        self.is_off = not self._path
        patches.later(self.finish)
        atexit.register(self.finish)

    def turn(self) -> None:
        """Some model calls later: open a window, or close it."""
        if self.is_off:
            return
        now = self._now()
        self._turns += 1
        if self._opened_ns:
            self._counted += 1
            if now - self._opened_ns >= WINDOW_NS:
                self._close(now)
        elif not self._began_ns:
            self._began_ns, self._due_ns = now, now + FIRST_NS
        elif now >= self._due_ns and self.windows < MOST_WINDOWS:
            self._open(now)

    def stop(self) -> None:
        """A device is used: copies and waits are counted there, all of them."""
        self.is_off = True
        self._part.undo()

    def finish(self) -> None:
        """Write what was counted; a forked child's counts are its parent's as well, and stay there."""
        atexit.unregister(self.finish)
        if self._opened_ns and not self.is_off:
            self._close(self._now())
        was_off, self.is_off = self.is_off, True
        if was_off or not self._counted or os.getpid() != self._pid:
            return
        rows, scale = self.lines.numbers(), self._turns / self._counted
        for row in rows:
            row["count"] = round(row["count"] * scale)
        lifetime = self._now() - self._began_ns
        numbers: dict[str, Any] = dict.fromkeys(("covered_ns", "busy_ns", "cost_ns", "marks", "dropped", "unresolved"), 0)
        numbers |= {"version": 1, "pid": os.getpid(), "name": "", "broken": "", "labels": [], "pairs": [], "memory": [],
                    "peaks": [], "peak_allocated": 0, "peak_reserved": 0}  # fmt: skip
        numbers |= {"lifetime_ns": lifetime, "measured_ns": self._measured_ns, "transfers": rows}
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            write_json(self._path, numbers, indent=None)
        except OSError:
            pass  # the disk is full or the session gone

    def _open(self, now: int) -> None:
        if self._part.closed:
            self.is_off = True
            return
        self._opened_ns = now  # first: another thread may come by
        for name in CALLS:
            original = getattr(self._tensor, name)
            self._part.put(self._tensor, name, Method(original, self._tensor, self._counting(original, name.strip("_"))))
        self.windows += 1

    def _close(self, now: int) -> None:
        self._part.undo()
        self._measured_ns += now - self._opened_ns
        self._opened_ns = 0
        self._due_ns = now + (now - self._began_ns)

    def _counting(self, original: Callable[..., Any], call: str) -> Callable[..., Any]:
        lines = self.lines

        def read(*args: Any, **keywords: Any) -> Any:
            try:
                lines.row(call, ON_HOST)[0] += 1
            except Exception:
                pass  # a frame without a place
            return original(*args, **keywords)

        return read
