/* Written by `python src/hotloop/record/native/make_layout.py` from store/schema.py, where it is explained. Do not edit. */
#ifndef HL_LAYOUT_H
#define HL_LAYOUT_H
#include <stdint.h>
enum { BUCKETS = 160, VERSION = 1, BLOCK_BYTES = 65536, BLOCK_WORDS = 8192, HEADER = 1, STRINGS = 2, LABELS = 3, PATHS = 4,
    NODES = 5, TRACKS = 6, EVENTS = 7, RING = 8, ITERATIONS = 9, PLACES = 10, STACKS = 11, SAMPLES = 12, CLOCK_KERNEL = 1,
    CLOCK_COUNTER = 2, CLOCK_PYTHON = 3, CLOCK_TEST = 4, WORK_COUNTERS = 2, COUNTER_SLOTS = 64, COUNTER_WORDS = 4,
    ENV_SLOTS = 64, ENV_WORDS = 4, SUSPENDED_SLOTS = 1024, SNAPSHOT_SLOTS = 1023, SNAPSHOT_WORDS = 4, LABEL_WORDS = 8,
    FLAG_HELD_ACROSS_YIELD = 1, FLAG_OWNS = 4, FLAG_PHASE_SHIFT = 8, FLAG_AFTER_SHIFT = 12, FLAG_PHASE_MASK = 15,
    PATH_WORDS = 4, NODE_WORDS = 96, HIST_BUCKETS = 160, TRACK_WORDS = 512, TRACK_FRAMES = 240, STATE_ENTERED_SHIFT = 24,
    STATE_DEPTH_MASK = 16777215, EVENT_WORDS = 4, EVENT_SEGMENT = 1, PLACE_WORDS = 6, STACK_WORDS = 1, SAMPLE_WORDS = 2,
    SAMPLE_HOLDS_GIL = 1073741824, SAMPLE_STATE_SHIFT = 28, SAMPLE_CALL_SHIFT = 26, SAMPLE_PATH_MASK = 67108863, ROW_WORDS = 4,
    ENTRY_WORDS = 2, MAX_LABELS = 16384, MAX_ZONES = 16384, READING_MOST_NS = 50000, ITERATION_LEAST_NS = 20000000,
    MEASURED_EVERY = 10, LOOK_BURST = 3, PENDING = 32, ASKED_MOST = 4, INSIDE_LEAST = 8, WATCHED_MOST = 64, DEEPEST = 120,
    MOST_NAME = 1024, SLOWER_EVERY = 4096, SLOWEST = 8, LASTS_NS = 20000, KINDS = 13 };
#define BLOCK_MAGIC 0x14b434f4c424c48ull
#define SAMPLE_EARLY 0x80000000u
enum { KIND_USER = 0, KIND_ROOT = 1, KIND_WAIT = 2, KIND_PROFILER = 3, KIND_HANDOFF = 4, KIND_OVERFLOW = 5, KIND_INFERRED = 6,
    KIND_GARBAGE = 7 };
enum { LOSS_DROPPED_NO_TRACK = 0, LOSS_DROPPED_REENTRANT = 1, LOSS_UNBALANCED = 2, LOSS_STRAY_EXIT = 3, LOSS_ABANDONED = 4,
    LOSS_CUT = 5, LOSS_LABEL_OVERFLOW = 6, LOSS_DEEP = 7, LOSS_CLOCK_BACK = 8, LOSS_CLOCK_STEP = 9, LOSS_DISK = 10,
    LOSS_COUNTER_OVERFLOW = 11, LOSS_BAD_NAME = 12, LOSS_INTERNAL = 13, LOSS_INHERITED = 14, LOSS_ITERATION_OVERFLOW = 15,
    LOSS_BUDGET = 16, LOSS_DROPPED_SUSPENDED = 17, LOSS_KINDS = 18 };
enum { COUNTER_ENV_STEPS = 0, COUNTER_UPDATES = 1, COUNTER_SAMPLES = 2, COUNTER_EPISODES = 3, COUNTER_RESETS = 4,
    COUNTER_AUTORESETS = 5 };
enum { STATE_UNKNOWN = 0, STATE_RUNNING = 1, STATE_BLOCKED = 2, STATE_WANTS_GIL = 3 };
enum { CALL_SHORT = 1, CALL_LASTING = 2 };
enum { PHASE_NONE = 0, PHASE_COLLECT = 1, PHASE_LEARN = 2, PHASE_EVAL = 3, PHASE_LOG = 4, PHASE_CHECKPOINT = 5,
    PHASE_TRANSFER = 6, PHASE_WAIT = 7, PHASE_STARTUP = 8 };
enum { ROLE_SPAN = 0, ROLE_ENV = 1, ROLE_MODEL = 2, ROLE_LISTS = 3, ROLE_PHASE = 4, ROLE_TRIAL = 5 };
enum { IN_ENV = 1, IN_MODEL = 2, IN_LEARN = 4, IN_LOG = 8, IN_SAVE = 16, IN_PHASE = 32, IN_DATA = 64, IN_RENDER = 128,
    IN_TRIAL = 256, IN_TEST = 512, COUNT_NOTHING = 0, COUNT_STEP = 1, COUNT_RESET = 2, COUNT_UPDATE = 3, COUNT_ENDS = 4,
    COUNT_EVAL_STEPS = 5, COUNT_EVAL_FIRST = 6 };
enum { Z_ROOT = 0, Z_PROFILER = 1, Z_HANDOFF = 2, Z_OVERFLOW = 3, Z_IDLE = 4, Z_GC = 5, Z_SLEEP = 6, Z_LOCK = 7, Z_SOCKET = 8,
    Z_SELECT = 9, Z_QUEUE = 10, Z_WRITE = 11, Z_RESERVED = 12 };
static const char *const COUNTERS[] = {"env_steps", "updates", "samples", "episodes", "resets", "autoresets"};
static const struct { const char *name; uint32_t kind; } RESERVED[] = {{"(root)", 1}, {"(profiler)", 3}, {"(handed over)", 4},
    {"(more labels)", 5}, {"(waiting: idle worker)", 2}, {"(gc pause)", 2}, {"(waiting: sleep)", 2}, {"(waiting: lock)", 2},
    {"(waiting: socket)", 2}, {"(waiting: select)", 2}, {"(waiting: queue)", 2}, {"log/write", 0}};
static const uint32_t ITEM_WORDS[] = {0, 0, 0, 8, 4, 96, 512, 4, 4, 0, 6, 1, 2};
typedef struct { uint64_t magic; uint32_t kind, ordinal, units, item_words; uint64_t capacity, used, reserved5[3]; } BlockHead;
typedef struct { uint64_t name, name_bytes, total, at_step; } CounterRec;
typedef struct { uint64_t calls, ns, track_plus_one, label_plus_one; } EnvRec;
typedef struct { uint64_t path_plus_one, start_ns; } SuspendedRec;
typedef struct { uint64_t time_ns, path, rss_bytes, peak_bytes; } SnapshotRec;
typedef struct { BlockHead head; uint64_t version, pid, parent_pid, shard_id, start_ns, start_unix_ns, end_ns, clock,
    cost_inside_ps, cost_outside_ps, cost_error_ps, epoch, iter_state, iterations, iter_start_ns, ring_head, first_work_ns,
    last_work_ns, parent_shard, native, budget, name, name_bytes, proc_start, disk_errno, peak_method, paused_ns, lifted,
    sample_ns, sample_ticks, sample_lost, seen_ns, reserved40[24], losses[64]; CounterRec counters[64]; EnvRec envs[64];
    uint64_t reserved640[384]; SuspendedRec suspended[1024]; uint64_t reserved3072[1024], snapshot_count;
    SnapshotRec snapshots[1023]; uint64_t reserved8189[3]; } Header;
typedef struct { uint64_t offset, bytes, kind, union_ns, union_start, flags, site, site_bytes; } LabelRec;
typedef struct { uint32_t parent, label; uint64_t origin_shard, origin_path, reserved3[1]; } PathRec;
typedef struct { uint32_t track, path; uint64_t count, self_ns, total_ns, min_ns, max_ns; double sumsq; uint64_t hist_shift,
    cpu_ns, cpu_wall_ns, mem_rise_max, mem_rise_sum, mem_rss_max; uint32_t mem_peak_calls, mem_end_calls; uint64_t gpu_peak,
    expired_ns; uint32_t hist[160]; } NodeRec;
typedef struct { uint64_t node, dur, count, total; double sumsq; uint64_t hist, union_ns; } Journal;
typedef struct { uint64_t birth_ns, self_before; } LifeRec;
typedef struct { uint64_t node, start_ns; } OpenRec;
typedef struct { Journal journal; uint64_t state, alive, tid, name, name_bytes, occupants, life; LifeRec lives[2];
    uint64_t base, reserved19[13]; OpenRec frames[240]; } TrackRec;
typedef struct { uint64_t start, dur; uint32_t path, track, iteration, flags; } EventRec;
typedef struct { uint32_t first, merged; uint64_t start_ns, end_ns; uint32_t entries, counters; } RowRec;
typedef struct { uint32_t key, calls; uint64_t value; } EntryRec;
typedef struct { uint64_t file, file_bytes, function, function_bytes; uint32_t line, first_line, column, ends; } PlaceRec;
typedef struct { uint32_t parent_plus_one, place; } StackRec;
typedef struct { uint32_t stack, path, track, count; } SampleRec;
_Static_assert(sizeof(BlockHead) == 64 && sizeof(CounterRec) == 32 && sizeof(EnvRec) == 32 && sizeof(SuspendedRec) == 16 &&
    sizeof(SnapshotRec) == 32 && sizeof(Header) == 65536 && sizeof(LabelRec) == 64 && sizeof(PathRec) == 32 &&
    sizeof(NodeRec) == 768 && sizeof(Journal) == 56 && sizeof(LifeRec) == 16 && sizeof(OpenRec) == 16 &&
    sizeof(TrackRec) == 4096 && sizeof(EventRec) == 32 && sizeof(RowRec) == 32 && sizeof(EntryRec) == 16 &&
    sizeof(PlaceRec) == 48 && sizeof(StackRec) == 8 && sizeof(SampleRec) == 16, "no gaps");
#endif
