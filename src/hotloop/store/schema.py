"""The shard's layout: every word and every code, stated once.

What lives here: the description. `record/native/make_layout.py` writes the native recorder's structs and codes from it, the
Python recorder and the decoder take them from here. `docs/format.md` is the prose version.

Invariant: all fields are little-endian 64-bit words unless named otherwise, every item starts on a word, and a reader
trusts nothing here beyond what the size of the file bears out.
"""

from __future__ import annotations

from ..model import shard as m
from ..model.histogram import BUCKETS

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
H_HEAD = 0
H_VERSION = 8
H_PID = 9
H_PARENT_PID = 10
H_SHARD_ID = 11
H_START_NS = 12  # monotonic
H_START_UNIX_NS = 13  # the same instant on the wall clock
H_END_NS = 14  # 0 until the recorder closed the shard
H_CLOCK = 15
CLOCK_KERNEL, CLOCK_COUNTER, CLOCK_PYTHON, CLOCK_TEST = range(1, 5)
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
H_COUNTERS = 128
COUNTERS = ("env_steps", "updates", "samples", "episodes", "resets", "autoresets")  # the first ones of every process
WORK_COUNTERS = 2  # of these, the first bound the training loop
COUNTER_SLOTS = 64
COUNTER_WORDS = 4
H_ENVS = 384  # one environment each: its steps and where they ran; its label is that of its class
ENV_SLOTS = 64
ENV_WORDS = 4
H_SUSPENDED = 1024  # open spans of tasks that are awaiting
SUSPENDED_SLOTS = 1024
H_SNAPSHOT_COUNT = 4096
H_SNAPSHOTS = 4097  # a ring
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
# Labels of our own, by what C calls them, and their kinds.
RESERVED = {
    "ROOT": ("(root)", m.ROOT), "PROFILER": ("(profiler)", m.PROFILER), "HANDOFF": ("(handed over)", m.HANDOFF),
    "OVERFLOW": ("(more labels)", m.OVERFLOW), "IDLE": ("(waiting: idle worker)", m.WAIT), "GC": (m.GC_PAUSE, m.WAIT),
    "SLEEP": ("(waiting: sleep)", m.WAIT), "LOCK": ("(waiting: lock)", m.WAIT), "SOCKET": ("(waiting: socket)", m.WAIT),
    "SELECT": ("(waiting: select)", m.WAIT), "QUEUE": ("(waiting: queue)", m.WAIT), "WRITE": ("log/write", m.USER),
}  # fmt: skip
FLAG_HELD_ACROSS_YIELD = 1
FLAG_OWNS = 4  # its own time is work, also where it has parts
FLAG_PHASE_SHIFT = 8  # the phase of a hook's label, see model/phase.py
FLAG_AFTER_SHIFT = 12  # of an inferred label: the phase before it, where that is another
FLAG_PHASE_MASK = 15

# Paths: the calling context, shared by all threads of the process. Path 0 is the root.
PATH_WORDS = 4
P_LINK, P_ORIGIN_SHARD, P_ORIGIN_PATH = range(3)

# Nodes: one per (track, path).
NODE_WORDS = 96
N_WHERE, N_COUNT, N_SELF_NS, N_TOTAL_NS, N_MIN_NS, N_MAX_NS, N_SUMSQ, N_HIST_SHIFT, N_CPU_NS, N_CPU_WALL_NS = range(10)
N_MEM_RISE_MAX, N_MEM_RISE_SUM, N_MEM_RSS_MAX, N_MEM_CALLS, N_GPU_PEAK, N_EXPIRED_NS, N_HIST = range(10, 17)
HIST_BUCKETS = BUCKETS

# Tracks: one per thread, reused by later threads of the same name.
TRACK_WORDS = 512
T_JOURNAL = 0  # of the span being closed: node, duration, then the new values of the rest
T_STATE = 7  # entered << 24 | depth << 1 | journal in flight
T_ALIVE = 8  # 1 live, 2 retired
T_TID = 9
T_NAME, T_NAME_BYTES = 10, 11
T_OCCUPANTS = 12
T_LIFE = 13  # which of the two (birth, self time before birth) pairs counts
T_LIVES = 14
T_BASE = 18  # node that stands for "nothing open": the root, or an idle worker's wait
T_FRAMES = 32
TRACK_FRAMES = 240
STATE_ENTERED_SHIFT = 24
STATE_DEPTH_MASK = (1 << 24) - 1

# Events.
EVENT_WORDS = 4
EVENT_SEGMENT = 1  # one running stretch of a generator

# Stack samples: a place is an instruction of a function, a stack a place below another stack. The columns of the instruction's
# text are in bytes of UTF-8, plus one; `ends`: low 16 bits the column behind it, above them how many lines further down.
PLACE_WORDS, STACK_WORDS, SAMPLE_WORDS = 6, 1, 2  # a sample's track 2^32 - 1: a thread without spans
SAMPLE_EARLY = 1 << 31  # of the path: before the training loop began
SAMPLE_HOLDS_GIL = 1 << 30  # of the path: the thread had the interpreter
SAMPLE_STATE_SHIFT = 28  # of the path, two bits: what the thread did (model/shard.py); 0 in older sessions: unknown
SAMPLE_CALL_SHIFT = 26  # of the path, two bits: how long its innermost instruction ran (model/shard.py); 0: unknown
SAMPLE_PATH_MASK = (1 << SAMPLE_CALL_SHIFT) - 1

# Iterations: rows of variable length in one of two blocks.
ROW_WORDS, ENTRY_WORDS = 4, 2  # an entry: path, calls and self time; or counter, 0 and increment

# What both recorders keep to.
MAX_LABELS = MAX_ZONES = 16384
READING_MOST_NS = 50_000  # a reading of the kernel takes no more: the rest is a wait for others
ITERATION_LEAST_NS = 20_000_000  # loops that learn after every step would otherwise write thousands of rows a second
MEASURED_EVERY = 10  # times the length from which on spans are long, between two whose processor time and memory are read
LOOK_BURST = 3  # calls in a row that are looked at where not all are: whether one repeats the other shows in neighbours only
PENDING = 32  # model calls of a track whose phase is open
ASKED_MOST = 4  # environments that are searched for another one
INSIDE_LEAST, WATCHED_MOST = 8, 64  # steps within another's until an environment is a part of it, or is not for good
DEEPEST, MOST_NAME = 120, 1024  # of sampled stacks, and of the names in them
SLOWER_EVERY, SLOWEST = 4096, 8  # a long run needs no more samples, only later ones
LASTS_NS = 20_000  # a running thread is looked at again after this time, twice: by then a call without much work has ended

# Records. A field is a word; `a|b` are the two halves of one, low half first; `a:d` is a float, `a:I*3` three halves, `a*3`
# three words, `a:Rec` a record. Of those with a prefix, the words are named above: these differ from their names.
_FIELDS = {
    "HEAD_KIND": "kind|ordinal", "HEAD_SIZE": "units|item_words", "P_LINK": "parent|label", "N_WHERE": "track|path",
    "N_SUMSQ": "sumsq:d", "N_MEM_CALLS": "mem_peak_calls|mem_end_calls", "N_HIST": f"hist:I*{HIST_BUCKETS}",
    "T_JOURNAL": "journal:Journal", "T_LIVES": "lives:LifeRec*2", "T_FRAMES": f"frames:OpenRec*{TRACK_FRAMES}",
    "H_HEAD": "head:BlockHead", "H_LOSSES": "losses*64", "H_COUNTERS": f"counters:CounterRec*{COUNTER_SLOTS}",
    "H_ENVS": f"envs:EnvRec*{ENV_SLOTS}", "H_SUSPENDED": f"suspended:SuspendedRec*{SUSPENDED_SLOTS}",
    "H_SNAPSHOTS": f"snapshots:SnapshotRec*{SNAPSHOT_SLOTS}",
}  # fmt: skip


def parse(field: str) -> tuple[str, str, int]:
    """Name, type and number.

    >>> parse("hist:I*160"), parse("parent|label"), parse("pid")
    (('hist', 'I', 160), ('parent|label', 'II', 1), ('pid', 'Q', 1))
    """
    field, _, times = field.partition("*")
    name, _, kind = field.partition(":")
    return name, kind or ("II" if "|" in name else "Q"), int(times or 1)


def format_of(fields: str) -> str:
    """As `struct` says it, without the byte order."""
    return "".join((format_of(RECORDS[kind]) if kind in RECORDS else kind) * n for _, kind, n in map(parse, fields.split()))


def words_of(fields: str) -> int:
    sizes = ((n // 2 if kind == "I" else n, RECORDS.get(kind)) for _, kind, n in map(parse, fields.split()))
    return sum(n * (words_of(record) if record else 1) for n, record in sizes)


def _named(prefix: str, words: int) -> str:
    """The fields whose words are named above; what lies between them is reserved."""
    fields, at = "", 0
    names = {word: name for name, word in globals().items() if name.startswith(prefix) and not name.endswith("_WORDS")}
    for word in sorted({*names, words}):
        fields += f" reserved{at}*{word - at}" if word > at else ""
        field = _FIELDS.get(names.get(word, ""), names.get(word, "").removeprefix(prefix).lower())
        fields, at = f"{fields} {field}", word + words_of(field)
    return fields


RECORDS: dict[str, str] = {}
RECORDS["BlockHead"] = _named("HEAD_", HEAD_WORDS)
RECORDS["CounterRec"] = "name name_bytes total at_step"
RECORDS["EnvRec"] = "calls ns track_plus_one label_plus_one"
RECORDS["SuspendedRec"] = "path_plus_one start_ns"
RECORDS["SnapshotRec"] = "time_ns path rss_bytes peak_bytes"
RECORDS["Header"] = _named("H_", BLOCK_WORDS)
RECORDS["LabelRec"] = _named("L_", LABEL_WORDS)
RECORDS["PathRec"] = _named("P_", PATH_WORDS)
RECORDS["NodeRec"] = _named("N_", NODE_WORDS)
RECORDS["Journal"] = "node dur count total sumsq:d hist union_ns"
RECORDS["LifeRec"] = "birth_ns self_before"
RECORDS["OpenRec"] = "node start_ns"
RECORDS["TrackRec"] = _named("T_", TRACK_WORDS)
RECORDS["EventRec"] = "start dur path|track iteration|flags"
RECORDS["RowRec"] = "first|merged start_ns end_ns entries|counters"
RECORDS["EntryRec"] = "key|calls value"
RECORDS["PlaceRec"] = "file file_bytes function function_bytes line|first_line column|ends"
RECORDS["StackRec"] = "parent_plus_one|place"
RECORDS["SampleRec"] = "stack|path track|count"

# The record of each kind of block that has items, and their words.
ITEMS = {
    LABELS: "LabelRec", PATHS: "PathRec", NODES: "NodeRec", TRACKS: "TrackRec", EVENTS: "EventRec", RING: "EventRec",
    PLACES: "PlaceRec", STACKS: "StackRec", SAMPLES: "SampleRec",
}  # fmt: skip
ITEM_WORDS = dict.fromkeys((HEADER, STRINGS, ITERATIONS), 0) | {kind: words_of(RECORDS[name]) for kind, name in ITEMS.items()}
