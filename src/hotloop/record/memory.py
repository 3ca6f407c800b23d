"""Memory of a span: the true peak while it was open, where the kernel can tell.

What lives here: `MemorySpan` (what `profile(name, track_memory=True)` returns) and the meter behind it. On Linux the
kernel's high-water mark is set back at each begin and end, and read at each end, so the peak is exact to the kernel's own
counting, for nested and overlapping spans too. Elsewhere, or where that is not permitted: end points only.

The mark belongs to the process, so a span sees what other threads allocate meanwhile.

Invariant: what the user reads as without us. The mark we set back is put up again to the true peak before every
`resource.getrusage` and when recording ends, by mapping a small memory file over and over for a moment: such pages count
as resident though they take no memory (57 ms for 1 GB here).
"""

from __future__ import annotations

import mmap
import os
from _thread import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from ._zone import Zone

KERNEL_PEAK, END_POINTS = 1, 2
_PAGE = mmap.PAGESIZE


def _read(path: str) -> bytes:
    # Opened anew each time: a kept descriptor could be closed by the program, and its number mean another file.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def resident_bytes() -> int:
    """Resident memory now, 0 where it cannot be read."""
    try:
        return int(_read("/proc/self/statm").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError, AttributeError):
        return 0


class _Open:
    __slots__ = ("peak", "start")

    def __init__(self, start: int) -> None:
        self.start = self.peak = start


class PeakMeter:
    """Peaks of several spans at once from the one mark the kernel keeps."""

    def __init__(self) -> None:
        self.method = 0
        self._lock = RLock()  # a signal handler may open a memory span while one is being opened
        self._open: list[_Open] = []
        self._lifetime_peak = 0
        self._fast = self._reading = False
        self._usage: Any = None

    def prepare(self) -> int:
        """Find out once what this machine can do; answers the method."""
        if self.method:
            return self.method
        self.method = END_POINTS
        try:
            import resource

            self._usage = resource.getrusage
            self._lifetime_peak = self._mark()
            if self._set_back():
                near = resident_bytes() + (8 << 20)
                # ru_maxrss is read in 3 us, but may be stuck at what the process was before exec.
                self._fast = self._mark_fast() <= near
                if self._mark() <= near:
                    self.method = KERNEL_PEAK
        except (ImportError, OSError, ValueError, AttributeError):
            pass
        return self.method

    def begin(self) -> _Open:
        with self._lock:
            if self.prepare() == KERNEL_PEAK:
                self._collect()
            opened = _Open(resident_bytes())
            self._open.append(opened)
            return opened

    def end(self, opened: _Open) -> tuple[int, int, int]:
        """(rise above the beginning, resident now, peak), in bytes."""
        with self._lock:
            now = resident_bytes()
            if self.method == KERNEL_PEAK:
                self._collect()
            opened.peak = max(opened.peak, now)
            if opened in self._open:
                self._open.remove(opened)
            return max(0, opened.peak - opened.start), now, opened.peak

    def _collect(self) -> None:
        """Give the mark's height to everyone who is open, and set it back."""
        try:
            mark = self._mark()
        except (OSError, ValueError):  # no descriptor is left
            self.method = END_POINTS
            return
        self._lifetime_peak = max(self._lifetime_peak, mark)
        for other in self._open:
            other.peak = max(other.peak, mark)
        self._set_back()

    def _mark_fast(self) -> int:
        self._reading = True
        try:
            return int(self._usage(0).ru_maxrss) * 1024  # RUSAGE_SELF
        finally:
            self._reading = False

    def _mark(self) -> int:
        if self._fast:
            return self._mark_fast()
        text = _read("/proc/self/status")
        at = text.index(b"VmHWM:") + 6
        return int(text[at : text.index(b"kB", at)]) * 1024

    def _set_back(self) -> bool:
        try:
            fd = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"5")
            finally:
                os.close(fd)
            return True
        except OSError:
            self.method = END_POINTS
            return False

    def around_reading(self, after: bool) -> None:
        """The user reads the mark: put it up for that, and take it down again if a span needs it."""
        if self._reading:
            return
        with self._lock:
            if not after:
                self.restore()
            elif self._open and self.method == KERNEL_PEAK:
                self._set_back()

    def restore(self) -> None:
        """Put the mark up to where it would be without us."""
        with self._lock:
            if not self._lifetime_peak:
                return
            try:
                mark = self._mark()
                for other in self._open:
                    other.peak = max(other.peak, mark)
                self._lifetime_peak = max(self._lifetime_peak, mark)
                if mark < self._lifetime_peak:
                    _raise_resident(self._lifetime_peak - resident_bytes())
            except (OSError, ValueError):
                pass


def _raise_resident(by: int) -> None:
    """Be `by` bytes larger for a moment, without taking that much memory."""
    piece = max(4 << 20, -(-by // 200) // _PAGE * _PAGE)  # at most 200 mappings: each keeps a descriptor
    fd = os.memfd_create("hotloop")
    maps: list[mmap.mmap] = []
    try:
        os.ftruncate(fd, piece)
        populate = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        while by > 0:
            size = min(piece, -(-by // _PAGE) * _PAGE)
            maps.append(mmap.mmap(fd, size, flags=populate, prot=mmap.PROT_READ | mmap.PROT_WRITE))
            by -= size
    finally:
        for mapped in maps:
            mapped.close()
        os.close(fd)


meter = PeakMeter()


_device: Any = None  # what tells device time and memory, once the script uses a device (see integrations/device/cuda.py)


def set_device(device: Any) -> None:
    global _device
    _device = device


class MemorySpan:
    """A span that also tells its memory. Made anew for each use; as a decorator it opens one per call."""

    __slots__ = ("_opened", "_recorder", "zone")

    def __init__(self, recorder: ModuleType, zone: Zone) -> None:
        self._recorder = recorder
        self.zone = zone
        self._opened: list[_Open] = []

    def __enter__(self) -> MemorySpan:
        if self._recorder.is_on():
            self._recorder.settle()
            self._opened.append(meter.begin())
            self._recorder.charge()
            if meter.method == KERNEL_PEAK and not _rusage_hooked:
                _hook_rusage(self._recorder)
        self.zone.__enter__()
        if _device is not None:
            _device.memory_span_begins()
        return self

    def __exit__(self, *_: Any) -> None:
        recorder = self._recorder
        if _device is not None:
            _device.memory_span_ends()
        if self._opened:
            recorder.settle()
            rise, now, peak = meter.end(self._opened.pop())
            recorder.note_memory(rise, now, peak, meter.method == KERNEL_PEAK)
            recorder.charge()
        self.zone.__exit__(None, None, None)

    def __call__(self, function: Any) -> Any:
        from .functions import decorate

        return decorate(self._recorder, self.zone, function, track_memory=True)


_rusage_hooked: list[bool] = []


def _hook_rusage(recorder: ModuleType) -> None:
    _rusage_hooked.append(recorder.hook_rusage(meter.around_reading))


def finish(recorder: ModuleType) -> None:
    """Recording ends: the kernel's mark and `getrusage` are as without us."""
    if _rusage_hooked:
        _rusage_hooked.clear()
        recorder.hook_rusage(None)
        meter.restore()
