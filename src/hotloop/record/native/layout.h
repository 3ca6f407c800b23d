/* The shard's layout as C structs: the mirror of store/schema.py (a contract test compares the two).
 *
 * What lives here: the mapped records and nothing else. Fields that another process may read while we write are
 * plain words; the words that publish are stored with `publish()`. */
#ifndef HL_LAYOUT_H
#define HL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>
#include "faults.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#ifdef HOTLOOP_CHECKS /* count every branch once */
#define FLATTEN static __attribute__((noinline))
#else
#define FLATTEN static inline __attribute__((always_inline))
#endif
#define COLD __attribute__((noinline, cold))

#define BLOCK_BYTES 65536u
#define SHARD_VERSION 1

enum { HEADER = 1, STRINGS, LABELS, PATHS, NODES, TRACKS, EVENTS, RING, ITERATIONS, PLACES, STACKS, SAMPLES, KINDS };
enum { KIND_USER, KIND_ROOT, KIND_WAIT, KIND_PROFILER, KIND_HANDOFF, KIND_OVERFLOW, KIND_INFERRED };
enum { FLAG_HELD_ACROSS_YIELD = 1, FLAG_OWNS = 4, FLAG_PHASE_SHIFT = 8 };
enum { EVENT_SEGMENT = 1 };
enum {
    LOSS_NO_TRACK, LOSS_REENTRANT, LOSS_UNBALANCED, LOSS_STRAY_EXIT, LOSS_ABANDONED, LOSS_CUT, LOSS_LABELS,
    LOSS_DEEP, LOSS_CLOCK_BACK, LOSS_CLOCK_STEP, LOSS_DISK, LOSS_COUNTERS, LOSS_BAD_NAME, LOSS_INTERNAL,
    LOSS_INHERITED, LOSS_ITERATION, LOSS_BUDGET, LOSS_SUSPENDED, LOSS_KINDS
};

#define COUNTER_SLOTS 64
#define SUSPENDED_SLOTS 1024
#define ENV_SLOTS 64
#define SNAPSHOT_SLOTS 1023
#define HIST_BUCKETS 160
#define TRACK_FRAMES 240

typedef struct {
    uint64_t magic;
    uint32_t kind, ordinal;
    uint32_t units, item_words;
    uint64_t capacity, used;
    uint64_t reserved[3];
} BlockHead;

typedef struct { uint64_t name, name_bytes, total, at_step; } CounterRec;
typedef struct { uint64_t calls, ns, track_plus_one, label_plus_one; } EnvRec; /* one environment: its steps and where they ran */
typedef struct { uint64_t path_plus_one, start_ns; } SuspendedRec;
typedef struct { uint64_t time_ns, path, rss_bytes, peak_bytes; } SnapshotRec;

typedef struct {
    BlockHead head;
    uint64_t version, pid, parent_pid, shard_id, start_ns, start_unix_ns, end_ns, clock;
    uint64_t cost_inside_ps, cost_outside_ps, cost_error_ps, epoch;
    uint64_t iter_state, iterations, iter_start_ns, ring_head, first_work_ns, last_work_ns;
    uint64_t parent_shard, native, budget, name, name_bytes, proc_start, disk_errno, peak_method, paused_ns, lifted;
    uint64_t sample_ns, sample_ticks, sample_lost, seen_ns;
    uint64_t reserved0[24];
    uint64_t losses[64];
    CounterRec counters[COUNTER_SLOTS];
    EnvRec envs[ENV_SLOTS];
    uint64_t reserved1[384];
    SuspendedRec suspended[SUSPENDED_SLOTS];
    uint64_t reserved2[1024];
    uint64_t snapshot_count;
    SnapshotRec snapshots[SNAPSHOT_SLOTS];
    uint64_t reserved3[3];
} Header;

typedef struct { uint64_t offset, bytes, kind, union_ns, union_start, flags, site, site_bytes; } LabelRec;

typedef struct { uint32_t parent, label; uint64_t origin_shard, origin_path, reserved; } PathRec;

typedef struct {
    uint32_t track, path;
    uint64_t count, self_ns, total_ns, min_ns, max_ns;
    double sumsq;
    uint64_t hist_shift;
    uint64_t cpu_ns, cpu_wall_ns, mem_rise_max, mem_rise_sum, mem_rss_max;
    uint32_t mem_peak_calls, mem_end_calls;
    uint64_t gpu_peak, reserved;
    uint32_t hist[HIST_BUCKETS];
} NodeRec;

typedef struct {
    uint64_t node, dur, count, total;
    double sumsq;
    uint64_t hist, union_ns;
} Journal;

typedef struct {
    Journal journal;
    uint64_t state, alive, tid, name, name_bytes, occupants, life;
    struct { uint64_t birth_ns, self_before; } lives[2];
    uint64_t base, reserved[13];
    struct { uint64_t node, start_ns; } frames[TRACK_FRAMES];
} TrackRec;

typedef struct { uint64_t start_ns, dur_ns; uint32_t path, track, iteration, flags; } EventRec;

typedef struct { uint32_t first, merged; uint64_t start_ns, end_ns; uint32_t entries, counters; } RowRec;
typedef struct { uint32_t key, calls; uint64_t value; } EntryRec;

/* Samples of what threads were doing: a place is a line of a function, a stack a place below another stack. */
typedef struct { uint64_t file, file_bytes, function, function_bytes; uint32_t line, first_line; uint64_t reserved; } PlaceRec;
typedef struct { uint32_t parent_plus_one, place; } StackRec;
typedef struct { uint32_t stack, path, track, count; } SampleRec;

/* Of a sample's path word: the path, what the thread did, and two flags. */
#define SAMPLE_EARLY (1u << 31) /* before the loop began */
#define SAMPLE_HOLDS_GIL (1u << 30) /* the thread had the interpreter */
#define SAMPLE_STATE_SHIFT 28 /* two bits */
enum { STATE_UNKNOWN, STATE_RUNNING, STATE_BLOCKED, STATE_WANTS_GIL };
_Static_assert(sizeof(PlaceRec) == 48 && sizeof(StackRec) == 8 && sizeof(SampleRec) == 16, "samples");
_Static_assert(sizeof(BlockHead) == 64, "block head");
_Static_assert(sizeof(Header) == BLOCK_BYTES, "header block");
_Static_assert(sizeof(LabelRec) == 64 && sizeof(PathRec) == 32 && sizeof(NodeRec) == 768, "records");
_Static_assert(sizeof(TrackRec) == 4096 && sizeof(EventRec) == 32, "records");
_Static_assert(sizeof(RowRec) == 32 && sizeof(EntryRec) == 16, "rows");

/* One aligned 8-byte store, not to be moved above the stores it publishes. */
FLATTEN void publish(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* Four buckets per octave from 16 ns on: a percentile is off by at most an eighth of itself. */
FLATTEN unsigned bucket_of(uint64_t dur) {
    if (dur < 16) return 0;
    unsigned octave = 63u - (unsigned)__builtin_clzll(dur);
    unsigned index = (octave - 4u) * 4u + (unsigned)((dur >> (octave - 2u)) & 3u);
    return index < HIST_BUCKETS ? index : HIST_BUCKETS - 1;
}
#endif
