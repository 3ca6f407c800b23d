"""What hooks say about the innermost open span besides its time, and whose time the saying was."""

from __future__ import annotations

from ...store import schema as s
from .spans import current_track, note_rise
from .tree import state


def now() -> int:
    return state.clock()


def settle() -> None:
    track = current_track()
    if track is not None:
        track.settle(state.clock())


def charge() -> None:
    """Charge the time since the last event to the profiler itself."""
    track = current_track()
    if track is not None:
        track.charge(state.clock())


def note_memory(rise: int, rss: int, peak: int, true_peak: bool) -> None:
    """What a span with track_memory saw, for the innermost open span."""
    track = current_track()
    if track is None or not track.frames:
        return
    node = track.top
    note_rise(node, rise)
    node[s.N_MEM_RSS_MAX] = max(node[s.N_MEM_RSS_MAX], peak)
    node.add(s.N_MEM_CALLS, 1 if true_peak else 1 << 32)
    header = state.head
    seen = header[s.H_SNAPSHOT_COUNT]
    slot = s.H_SNAPSHOTS + seen % s.SNAPSHOT_SLOTS * s.SNAPSHOT_WORDS
    header[slot], header[slot + 1], header[slot + 2], header[slot + 3] = state.clock(), node.path, rss, peak
    header[s.H_SNAPSHOT_COUNT] = seen + 1


def note_gpu_peak(peak: int) -> None:
    """The device's memory peak in the innermost open span."""
    track = current_track()
    if track is not None and track.frames:
        track.top[s.N_GPU_PEAK] = max(track.top[s.N_GPU_PEAK], peak)
