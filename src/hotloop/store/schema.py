"""The shard's layout: every offset and every code, stated once.

What lives here: constants only. The native recorder mirrors them in `record/native/layout.h`; a contract test compares
the two, so neither can drift. `docs/format.md` is the prose version.

Invariant: all fields are little-endian 64-bit words unless named otherwise, every item starts on a word, and a reader
trusts nothing here beyond what the size of the file bears out.
"""

from __future__ import annotations

VERSION = 1
SHARD_SUFFIX = ".hls"
SHARD_DIR = "shards"
SESSION_FILE = "session.json"
HOOKS_FILE = "hooks.jsonl"

BLOCK_BYTES = 65536  # also the mapping granularity of Windows, so every block can be mapped on its own anywhere
BLOCK_WORDS = BLOCK_BYTES // 8
BLOCK_MAGIC = int.from_bytes(b"HLBLOCK\x01", "little")

# Kinds of block. Items are numbered through all blocks of one kind, in the order of their ordinals.
HEADER, STRINGS, LABELS, PATHS, NODES, TRACKS, EVENTS, RING, ITERATIONS, PLACES, STACKS, SAMPLES = range(1, 13)
KIND_NAMES = (
    "", "header", "strings", "labels", "paths", "nodes", "tracks", "events", "ring", "iterations", "places",
    "stacks", "samples",
)  # fmt: skip

# Head of every block (8 words).
HEAD_WORDS = 8
HEAD_MAGIC = 0
HEAD_KIND = 1  # low half: kind, high half: ordinal
HEAD_SIZE = 2  # low half: number of 64 KiB units, high half: words per item (0: bytes)
HEAD_CAPACITY = 3
HEAD_USED = 4  # items published; the last word written when an item is added

# Header block: words counted from the start of the file.
H_VERSION = 8
H_PID = 9
H_PARENT_PID = 10
H_SHARD_ID = 11
H_START_NS = 12  # monotonic
H_START_UNIX_NS = 13  # the same instant on the wall clock
H_END_NS = 14  # 0 until the recorder closed the shard
H_CLOCK = 15  # 1 clock_gettime, 2 time-stamp counter, 3 Python, 4 a test's
H_COST_INSIDE_PS = 16  # own cost per span that falls inside its measured time, picoseconds
H_COST_OUTSIDE_PS = 17  # ... and outside, in the enclosing span
H_COST_ERROR_PS = 18  # standard error of their sum
H_EPOCH = 19
H_ITER_STATE = 20  # high half: which of the two iteration blocks, low half: words used
H_ITERATIONS = 21  # iterations closed
H_ITER_START_NS = 22
H_RING_HEAD = 23  # events ever written to the ring; the next goes to this number modulo the capacity
H_FIRST_WORK_NS = 24  # first and last env step, update or step()
H_LAST_WORK_NS = 25
H_PARENT_SHARD = 26
H_NATIVE = 27
H_BUDGET = 28
H_NAME = 29  # byte offset of the process name, and its length
H_NAME_BYTES = 30
H_PROC_START = 31  # start time of the process in kernel ticks, tells a reused pid apart
H_DISK_ERRNO = 32
H_PEAK_METHOD = 33  # 0 none, 1 kernel peak reset per span, 2 end points only
H_PAUSED_NS = 34  # time spent disabled
H_LIFTED = 35  # spans off every stack now: of suspended generators and awaiting tasks
H_SAMPLE_NS = 36  # mean interval of the stack sampler; 0 where there is none
H_SAMPLE_TICKS = 37  # looks taken
H_SAMPLE_LOST = 38  # stacks that changed while they were read, or found no room
H_SEEN_NS = 39  # when the sampler looked last: the process was alive then; 0 where there is none
H_LOSSES = 64  # 64 counters, see LOSSES
H_COUNTERS = 128  # 64 x (name's byte offset, name's byte length, total, total at the last step)
COUNTER_SLOTS = 64
COUNTER_WORDS = 4
H_ENVS = 384  # 64 x (steps, nanoseconds in them, track + 1, label + 1 of its class): one environment each
ENV_SLOTS = 64
ENV_WORDS = 4
H_SUSPENDED = 1024  # 1024 x (path + 1, start): open spans of tasks that are awaiting
SUSPENDED_SLOTS = 1024
H_SNAPSHOTS = 4096  # ring of 1023 x (time, path, resident bytes, peak bytes), after a word with the count
SNAPSHOT_SLOTS = 1023
SNAPSHOT_WORDS = 4

# Why something was lost, or odd. Kept by number: append, never reorder.
LOSSES = (
    "dropped_no_track",  # a span on a thread that got no track
    "dropped_reentrant",  # a span inside the recorder itself (a signal handler; Python recorder only)
    "unbalanced",  # closed because an outer span was closed first
    "stray_exit",  # an exit without its enter
    "abandoned",  # never closed: its thread, task or generator is gone
    "cut",  # open when recording was stopped
    "label_overflow",  # recorded under "(more labels)"
    "deep",  # deeper than a track shows after a crash
    "clock_back",  # the clock went backwards and was held
    "clock_step",  # the clock jumped against the kernel's
    "disk",  # a block could not be reserved
    "counter_overflow",  # more than 64 counters
    "bad_name",  # a label that is not a string
    "internal",  # a fault of ours, swallowed
    "inherited",  # an exit of a span that the parent process opened
    "iteration_overflow",  # entries of an iteration folded into the root
    "budget",  # a block refused because the session's size limit was reached
    "dropped_suspended",  # a generator's or task's span, suspended when recording stopped
)
LOSS_INDEX = {name: index for index, name in enumerate(LOSSES)}

# Labels.
LABEL_WORDS = 8
L_OFFSET, L_BYTES, L_KIND, L_UNION_NS, L_UNION_START, L_FLAGS, L_SITE, L_SITE_BYTES = range(8)
# L_UNION_START counts only while a span of the label is open (on a track's stack, or suspended).
KIND_USER, KIND_ROOT, KIND_WAIT, KIND_PROFILER, KIND_HANDOFF, KIND_OVERFLOW, KIND_INFERRED = range(7)
FLAG_HELD_ACROSS_YIELD = 1
FLAG_OWNS = 4  # its own time is work, also where it has parts
FLAG_PHASE_SHIFT = 8  # the phase of a hook's label, see model/phase.py
FLAG_AFTER_SHIFT = 12  # of an inferred label: the phase before it, where that is another
FLAG_PHASE_MASK = 15

# Paths: the calling context, shared by all threads of the process. Path 0 is the root.
PATH_WORDS = 4
P_LINK, P_ORIGIN_SHARD, P_ORIGIN_PATH = range(3)  # link: parent in the low half, label in the high half

# Nodes: one per (track, path).
NODE_WORDS = 96
(
    N_WHERE,  # track in the low half, path in the high half
    N_COUNT,
    N_SELF_NS,
    N_TOTAL_NS,
    N_MIN_NS,
    N_MAX_NS,
    N_SUMSQ,  # float64
    N_HIST_SHIFT,
    N_CPU_NS,
    N_CPU_WALL_NS,
    N_MEM_RISE_MAX,
    N_MEM_RISE_SUM,
    N_MEM_RSS_MAX,
    N_MEM_CALLS,  # low half: readings of the true peak, high half: readings at the end points
    N_GPU_PEAK,
    N_RESERVED,
) = range(16)
N_HIST = 16  # 160 x uint32
HIST_BUCKETS = 160  # see model/histogram.py

# Tracks: one per thread, reused by later threads of the same name.
TRACK_WORDS = 512
T_JOURNAL = 0  # of the span being closed: node, duration, then the new values of the rest
J_NODE, J_DUR, J_COUNT, J_TOTAL, J_SUMSQ, J_HIST, J_UNION = range(7)
T_STATE = 7  # entered << 24 | depth << 1 | journal in flight
T_ALIVE = 8  # 1 live, 2 retired
T_TID = 9
T_NAME, T_NAME_BYTES = 10, 11
T_OCCUPANTS = 12
T_LIFE = 13  # which of the two (birth, self time before birth) pairs counts
T_LIVES = 14  # 2 x 2 words
T_BASE = 18  # node that stands for "nothing open": the root, or an idle worker's wait
T_FRAMES = 32  # 240 x (node, start)
TRACK_FRAMES = 240
STATE_ENTERED_SHIFT = 24
STATE_DEPTH_MASK = (1 << 24) - 1

# Events.
EVENT_WORDS = 4
E_START, E_DUR, E_WHERE, E_ITER = range(4)  # where: path | track << 32; iter: iteration | flags << 32
EVENT_SEGMENT = 1  # one running stretch of a generator

# Stack samples: a place is a line of a function, a stack a place below another stack.
PLACE_WORDS = 6  # file's byte offset, length, function's byte offset, length, line | first line << 32, reserved
STACK_WORDS = 1  # parent stack + 1, place << 32
SAMPLE_WORDS = 2  # stack | path << 32, track | count << 32; track 2^32 - 1: a thread without spans
SAMPLE_EARLY = 1 << 31  # of the path: before the training loop began
SAMPLE_HOLDS_GIL = 1 << 30  # of the path: the thread had the interpreter
SAMPLE_STATE_SHIFT = 28  # of the path, two bits: what the thread did (model/shard.py); 0 in older sessions: unknown
SAMPLE_PATH_MASK = (1 << SAMPLE_STATE_SHIFT) - 1

# Iterations: rows of variable length in one of two blocks.
ROW_WORDS = 4  # first iteration | iterations merged << 32, start, end, entries | counters << 32
ENTRY_WORDS = 2  # path | calls << 32, self time; or counter, increment
