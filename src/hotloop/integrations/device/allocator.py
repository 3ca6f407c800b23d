"""Memory of the caching allocator: over time, the highest, and the true peak inside spans that ask for it.

What lives here: readings of `torch._C._cuda_memoryStats` (a plain `memory_allocated()` builds a flat dictionary of everything,
72 µs), taken at the edges of spans, some times a second. For a span with `track_memory=True` the allocator's mark is set
back at the beginning; what the user reads of it (`max_memory_allocated`, `memory_stats`) is put right. Invariant: the user's
own readings and resets mean what they mean without us."""

from __future__ import annotations

import functools
from typing import Any

from .. import _patch as p

EVERY_NS = 100_000_000
MOST_POINTS = 512
_PEAKS = (("allocated_bytes", "all"), ("reserved_bytes", "all"))


class Allocator:
    def __init__(self, torch: Any, patches: p.Patches) -> None:
        self._torch, self._read = torch, torch._C._cuda_memoryStats
        self._points: list[tuple[int, int, int]] = []
        self._every_ns = EVERY_NS
        self._next_ns = 0
        self._peak = [0, 0]  # allocated, reserved: the highest of the whole run
        self._hidden: dict[int, dict[tuple[str, str], int]] = {}  # by device: what the mark was before we set it back
        self._open: list[list[int]] = []  # spans that ask for their peak: [bytes at its beginning, peak]
        self._span_peaks: dict[tuple[int, int], int] = {}
        self._hook_readings(patches)

    def device_name(self) -> str:
        return str(self._torch.cuda.get_device_name())

    # ---- over time ----

    def look(self, at_ns: int) -> bool:
        """Read, if the last reading is a while ago."""
        if at_ns < self._next_ns:
            return False
        allocated, reserved, peak, peak_reserved = self._stats()
        self._peak = [max(self._peak[0], peak), max(self._peak[1], peak_reserved)]
        self._points.append((at_ns, allocated, reserved))
        if len(self._points) >= MOST_POINTS:
            self._points, self._every_ns = self._points[1::2], 2 * self._every_ns
        self._next_ns = at_ns + self._every_ns
        return True

    def _stats(self) -> tuple[int, int, int, int]:
        stats = self._read(self._torch._C._cuda_getDevice())
        allocated, reserved = (stats[name][pool] for name, pool in _PEAKS)
        return allocated["current"], reserved["current"], allocated["peak"], reserved["peak"]

    # ---- true peaks of spans ----

    def span_begins(self) -> None:
        device = self._torch._C._cuda_getDevice()
        allocated, _, peak, reserved = self._stats()
        self._fold(peak)
        hidden = self._hidden.setdefault(device, dict.fromkeys(_PEAKS, 0))
        hidden[_PEAKS[0]] = max(hidden[_PEAKS[0]], peak)
        hidden[_PEAKS[1]] = max(hidden[_PEAKS[1]], reserved)
        self._peak = [max(self._peak[0], peak), max(self._peak[1], reserved)]
        self._torch._C._cuda_resetPeakMemoryStats(device)
        self._open.append([allocated, allocated])

    def span_ends(self, key: tuple[int, int]) -> int:
        """The allocator's peak in the span."""
        if not self._open:
            return 0
        self._fold(self._stats()[2])
        peak = self._open.pop()[1]
        if key in self._span_peaks or len(self._span_peaks) < MOST_POINTS:
            self._span_peaks[key] = max(self._span_peaks.get(key, 0), peak)
        return peak

    def _fold(self, peak: int) -> None:
        for span in self._open:
            span[1] = max(span[1], peak)

    # ---- what the user reads ----

    def _hook_readings(self, patches: p.Patches) -> None:
        """Every reading in Python goes through one function of `torch.cuda.memory`, and every reset through three."""
        module = self._torch.cuda.memory
        for name, around in (
            ("memory_stats_as_nested_dict", self._correcting), ("reset_peak_memory_stats", self._forgetting),
            ("reset_max_memory_allocated", self._forgetting), ("reset_max_memory_cached", self._forgetting),
        ):  # fmt: skip
            function = getattr(module, name, None)
            if function is not None:
                made = around(function)
                patches.put(module, name, made)
                if vars(self._torch.cuda).get(name) is function:
                    patches.put(self._torch.cuda, name, made)

    def _correcting(self, nested: Any) -> Any:
        @functools.wraps(nested)
        def memory_stats_as_nested_dict(device: Any = None) -> Any:
            stats = nested(device)
            try:
                for (name, pool), peak in (self._hidden.get(self._index(device), {}) if self._hidden and stats else {}).items():
                    row = stats.get(name, {}).get(pool, {})
                    if "peak" in row:
                        row["peak"] = max(row["peak"], peak)
            except Exception:
                pass  # a device that is gone, or a version of torch that we do not know: the reading is as torch has it
            return stats

        return memory_stats_as_nested_dict

    def _forgetting(self, reset: Any) -> Any:
        @functools.wraps(reset)
        def forget(device: Any = None) -> Any:
            try:
                self._fold(self._stats()[2])
                self._hidden.pop(self._index(device), None)
            except Exception:
                pass  # the call itself will say what is wrong with the device
            return reset(device)

        return forget

    def _index(self, device: Any) -> int:
        return int(self._torch.cuda._utils._get_device_index(device, optional=True))

    def numbers(self) -> dict[str, Any]:
        allocated, reserved = self._peak
        return {
            "memory": [list(point) for point in self._points],
            "peaks": [[*key, peak] for key, peak in list(self._span_peaks.items())],
            "peak_allocated": allocated, "peak_reserved": reserved,
        }  # fmt: skip
