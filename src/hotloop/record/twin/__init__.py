"""The recorder in Python: the fallback where nothing was compiled, and the oracle the native one is tested against.

What lives here: the same names as `hotloop.record._zone` (its stub is the contract for both), in rooms named after the
native headers: tree (labels, paths, nodes, tracks), spans (enter, leave, lift, hand over), rows (iterations, counters),
session (start, pause, end, forks), waits, phases (deferred labelling, start-up), environments (who they are, what their
steps count), hooks (roles, classes, garbage), sampler.

Invariant: same calls, same file. What only the native recorder has:
- it sees forks that no Python hook sees;
- it knows when a thread waits for a lock;
- its unions are exact to the nanosecond while threads preempt one another;
- text written to files and terminals: the type that does it cannot be changed from Python, only `os.fsync` is hooked;
- hooks that add no frame: here a hooked call, and a class statement while classes are watched, has a Python frame of ours
  in its stack (call sites and stack samples leave it out; `sys._getframe` in the script does not);
- a sampler beside the interpreter: here it is a Python thread that sees others where they let go of the interpreter lock;
- pauses of the garbage collector within the recorder itself: here they are the span's.
"""

from .environments import set_on_env
from .hooks import expect_updates, gc_pause, hook, set_revive, watch_classes, within, zone
from .lifting import adopt, depth, here, lift, lower, origin, release
from .phases import phases_start
from .readings import charge, note_gpu_peak, note_memory, now, settle
from .rows import count, count_seen, step
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
    set_on_edge,
    set_on_loop,
    set_on_step,
    set_time,
    shard,
    snapshot,
    use_track,
)
from .spans import Zone, profile, wrap
from .waits import hook_rusage, hook_waits, hook_writes, unhook_waits

NATIVE = False
