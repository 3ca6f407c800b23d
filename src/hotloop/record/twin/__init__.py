"""The recorder in Python: the fallback where nothing was compiled, and the oracle the native one is tested against.

What lives here: the same names as `hotloop.record._zone` (its stub is the contract for both), in rooms named after the
native headers: tree (labels, paths, nodes, tracks), spans (enter, leave, lift, hand over), rows (iterations, counters),
session (start, pause, end, forks), waits.

Invariant: same calls, same file. Three things only the native recorder has: it sees forks that no Python hook sees, it
knows when a thread waits for a lock, and its unions are exact to the nanosecond while threads preempt one another.
"""

from __future__ import annotations

from .rows import count, step
from .session import (
    attach,
    close,
    disk_error,
    end_track,
    is_on,
    lose,
    name_process,
    open,
    pause,
    reset,
    resume,
    set_callbacks,
    set_on_step,
    set_time,
    shard,
    snapshot,
    use_track,
)
from .spans import (
    Zone,
    adopt,
    charge,
    depth,
    here,
    lift,
    lower,
    note_memory,
    now,
    profile,
    release,
    settle,
    wrap,
)
from .waits import hook_rusage, hook_waits, unhook_waits

NATIVE = False

__all__ = [
    "NATIVE", "Zone", "adopt", "attach", "charge", "close", "count", "depth", "disk_error", "end_track", "here",
    "hook_rusage", "hook_waits", "is_on", "lift", "lose", "lower", "name_process", "note_memory", "now", "open", "pause",
    "profile", "release", "reset", "resume", "set_callbacks", "set_on_step", "set_time", "settle", "shard", "snapshot", "step",
    "unhook_waits", "use_track", "wrap",
]  # fmt: skip
