/* The hot path: a span is entered, a span is left.
 *
 * What lives here: what every span pays for. No lock, no allocation, no call into Python (but to tell_edge). Invariant: at every
 * instruction the mapped file is either the state before the operation or can be completed from the journal, so a
 * process killed anywhere loses no finished span and tears none. How:
 *   - self time is one addition per event (see track.h);
 *   - leaving writes the new values into the journal, publishes "in flight", copies them to the node, publishes "done". */
#ifndef HL_HOT_H
#define HL_HOT_H

#include "track.h"

/* ---- timeline ---- */

/* Room for more events; making it is our time, not the span's. */
COLD static EventRec *log_slot(Track *track) {
    g.log_block = block_new(EVENTS, 1);
    charge(track, now());
    if (!g.log_block) {
        g.log_left = g.log_room = 0;
        return g.log_next = g.log_end = NULL;
    }
    g.log_next = (EventRec *)(g.log_block + 1);
    g.log_end = g.log_next + g.log_block->capacity;
    return g.log_next;
}

FLATTEN void put_event(Track *track, Node *node, uint64_t start, uint64_t dur, uint32_t flags) {
    EventRec *event;
    if (g.log_left && (event = LIKELY(g.log_next != g.log_end) ? g.log_next : log_slot(track))) {
        g.log_next++;
        g.log_left--;
        g.log_room--;
        *event = (EventRec){start, dur, node->path, track->id, g.iteration, flags};
        publish(&g.log_block->used, g.log_block->used + 1);
    } else if (LIKELY(g.ring != NULL)) {
        /* the slot at the head may be half old, half new: a reader leaves it out */
        g.ring[g.ring_head & g.ring_mask] = (EventRec){start, dur, node->path, track->id, g.iteration, flags};
        publish(&sh.head->ring_head, ++g.ring_head);
    }
}

/* Full events are kept for the rows of iterations 0, 1, 2, 10, 20, 40, 80, ...: the number of windows grows with the logarithm of
 * the run. Between them the ring holds the latest. */
static void next_window(void) {
    uint64_t i = g.row, total = g.conf.log_events[g.conf.is_child], want = 0;
    if (i == 0) want = total / 2;
    else if (i < 3 || (i % 10 == 0 && __builtin_popcountll(i / 10) == 1)) want = total / 16;
    g.log_left = want < g.log_room ? want : g.log_room;
}

/* ---- long spans: processor time and memory ---- */

static uint64_t resident_bytes(void) {
    char text[64];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

/* Now and then: where all cores are busy, a thread that calls the kernel gives its core away there and then, and all its waiting
 * for a core would come to lie at the edges of its long spans. */
COLD static void measure_enter(Track *track, Frame *frame) {
    Node *node = frame->node;
    if (node->slow & SLOW_OVERFLOW) lose(LOSS_LABEL_OVERFLOW);
    if (!(node->slow & SLOW_LONG) || (node->measured && frame->start - node->measured < MEASURED_EVERY * g.conf.long_ns)) return;
    node->measured = frame->start;
    frame->rss = resident_bytes();
    frame->cpu_ns = kernel_ns(CLOCK_THREAD_CPUTIME_ID);
    frame->flags |= FRAME_MEASURED;
    charge_reading(track);
}

/* The readings at the end of a span, while it is still open; answers when they were done. */
COLD static uint64_t read_at_exit(Track *track, Frame *frame, uint64_t at) {
    frame->cpu_ns = kernel_ns(CLOCK_THREAD_CPUTIME_ID) - frame->cpu_ns;
    frame->rss_end = resident_bytes();
    settle(track, at);
    charge_reading(track);
    return track->last;
}

COLD static void measure_exit(Frame *frame, uint64_t dur) {
    Node *node = frame->node;
    if (dur >= g.conf.long_ns) node->slow |= SLOW_LONG;
    else if (dur < g.conf.long_ns / 8) node->slow &= ~(uint32_t)SLOW_LONG;
    if (!(frame->flags & FRAME_MEASURED)) return;
    NodeRec *rec = node->rec;
    rec->cpu_ns += frame->cpu_ns;
    rec->cpu_wall_ns += dur;
    uint64_t rss = frame->rss_end, rise = rss > frame->rss ? rss - frame->rss : 0;
    if (!rec->mem_peak_calls) { /* where true peaks are asked for, end points add nothing */
        if (rise > rec->mem_rise_max) rec->mem_rise_max = rise;
        rec->mem_rise_sum += rise;
        rec->mem_end_calls++;
    }
    if (rss > rec->mem_rss_max) rec->mem_rss_max = rss;
}

/* ---- unions ---- */

FLATTEN void label_opened(Label *label, uint64_t at) {
    if (label->open++ == 0) label->rec->union_start = at;
}

/* Outside a journalled exit: a generator is suspended, a span is abandoned. */
static void label_closed(Label *label, uint64_t at) {
    if (label->open == 1) label_end(label, at);
    else label->open--;
}

/* ---- enter ---- */

COLD static int frames_grow(Track *track) {
    return track->room >= 1u << 22 ? -1 : grow((void **)&track->frames, &track->room, sizeof *track->frames);
}

/* The stack is not a path down the tree: recursion, or a generator that went on elsewhere. Is the label open already? */
COLD static uint32_t misplaced_flags(Track *track, Node *node) {
    uint32_t flags = track->depth && node->parent != track->top ? FRAME_MISPLACED : 0;
    track->misplaced += flags != 0;
    for (uint32_t i = track->depth; i-- > 0;)
        if (track->frames[i].node->label == node->label) return flags | FRAME_REENTRY;
    return flags;
}

COLD static void look_at_caller(Zone *zone);

/* The first time since the latest work: what it has by now was before that. */
FLATTEN void note_work(Node *node) {
    if (node->work == g.work) return;
    node->work = g.work;
    node->self_at_work = node->rec->self_ns;
    node->count_at_work = node->rec->count;
}

FLATTEN Frame *push(Track *track, Zone *zone, Node *node, uint64_t at) {
    uint32_t depth = track->depth;
    Node *below = track->top;
    Frame *frame = &track->frames[depth];
    frame->node = node;
    frame->below = below;
    frame->zone = zone;
    frame->start = at;
    note_work(node);
    frame->flags = UNLIKELY(node->parent != below || track->misplaced) ? misplaced_flags(track, node) : 0;
    TrackRec *rec = track->rec;
    if (LIKELY(depth < TRACK_FRAMES)) {
        rec->frames[depth].node = node->id;
        rec->frames[depth].start_ns = at;
    } else {
        lose(LOSS_DEEP);
    }
    if (LIKELY(!(frame->flags & FRAME_REENTRY))) label_opened(node->label, at);
    track->top = node;
    track->depth = depth + 1;
    track->state += (1u << STATE_ENTERED_SHIFT) + 2;
    publish(&rec->state, track->state);
    return frame;
}

/* ---- Python code of ours ---- */

static int raise_again(void *exception) {
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

/* Python code of ours raised. A fault is counted and goes no further: 1. Ctrl-C, or what else a signal handler of the script
 * raised, only happened to arrive there; the interpreter raises it anew as soon as the script goes on: 0. */
COLD static int swallow_error(void) {
    PyObject *type, *value, *traceback;
    int ours = PyErr_ExceptionMatches(PyExc_Exception) || (pid_t)syscall(SYS_gettid) != getpid(); /* handlers run in the main thread */
    PyErr_Fetch(&type, &value, &traceback);
    if (!ours) PyErr_NormalizeException(&type, &value, &traceback);
    if (!ours && value && !Py_AddPendingCall(raise_again, value)) value = NULL;
    if (ours && sh.head) lose(LOSS_INTERNAL);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return ours;
}

/* ---- edges ---- */

static uint64_t edges_from = UINT64_MAX; /* when somebody next wants to know of one */
static PyObject *on_edge;                /* (where, entered) -> from when on to be told next */

/* A span began or ended, and a device's events are to be placed there. Our time; an error on its way stays as it is. */
COLD static void tell_edge(Track *track, int entered) {
    static __thread int telling;
    if (telling || !on_edge || track->gen != page->gen) return;
    PyObject *type, *value, *traceback, *call = Py_NewRef(on_edge);
    telling = 1;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *from = PyObject_CallFunction(call, "(KK)i", (unsigned long long)sh.head->shard_id,
                                           (unsigned long long)track->top->path, entered);
    uint64_t next = from ? PyLong_AsUnsignedLongLong(from) : 0;
    if (PyErr_Occurred() && swallow_error()) next = UINT64_MAX;
    if (on_edge == call) edges_from = next;
    Py_XDECREF(from);
    Py_DECREF(call);
    PyErr_Restore(type, value, traceback);
    if (track->gen == page->gen) charge(track, now());
    telling = 0;
}

FLATTEN void span_enter(Zone *zone) {
    Track *track = self;
    if (UNLIKELY(track->gen != page->gen) && !(track = wake())) return;
    Node *top = track->top;
    Node *node = LIKELY(zone->hit_parent == top) ? zone->hit_node : find_child(track, top, zone);
    if (UNLIKELY(track->depth == track->room) && frames_grow(track)) {
        lose(LOSS_DROPPED_NO_TRACK);
        track->inherited++;
        return;
    }
    uint64_t at = now();
    settle(track, at);
    Frame *frame = push(track, zone, node, at);
    if (UNLIKELY(node->slow)) measure_enter(track, frame);
    if (UNLIKELY(--zone->check == 0)) look_at_caller(zone);
    if (UNLIKELY(at >= edges_from) && zone->marks) tell_edge(track, 1);
}

/* ---- exit ---- */

/* A bucket that reached 2^32 - 1: halve them all, the shape stays. */
COLD static uint32_t halve_histogram(NodeRec *rec, unsigned bucket) {
    for (unsigned i = 0; i < HIST_BUCKETS; i++) rec->hist[i] >>= 1;
    rec->hist_shift++;
    return rec->hist[bucket] + 1;
}

static inline void close_top(Track *track, uint64_t at) {
    uint32_t depth = track->depth - 1;
    Frame *frame = &track->frames[depth];
    Node *node = frame->node;
    NodeRec *rec = node->rec;
    Label *label = node->label;
    uint64_t own = 0;
    if (UNLIKELY(frame->flags & FRAME_CHARGED)) { /* as all are that were measured */
        if (frame->flags & FRAME_MEASURED) at = read_at_exit(track, frame, at);
        own = frame->own;
    }
    settle(track, at);
    uint64_t whole = at - frame->start, dur = whole - own;
    if (UNLIKELY(dur >= g.conf.long_ns || frame->flags & FRAME_MEASURED)) measure_exit(frame, dur);
    int outermost = !(frame->flags & FRAME_REENTRY);
    int closes = outermost && --label->open == 0;
    unsigned bucket = bucket_of(dur);
    uint32_t hist = rec->hist[bucket] + 1;
    if (UNLIKELY(hist == 0)) hist = halve_histogram(rec, bucket);
    Journal *j = &track->rec->journal;
    j->node = node->id;
    j->dur = dur;
    j->count = rec->count + 1;
    j->total = rec->total_ns + (outermost ? dur : 0);
    j->sumsq = rec->sumsq + (double)dur * (double)dur;
    j->hist = hist;
    j->union_ns = label->rec->union_ns + (closes ? at - label->rec->union_start : 0);
    publish(&track->rec->state, track->state | 1);
    rec->count = j->count;
    rec->total_ns = j->total;
    rec->sumsq = j->sumsq;
    rec->hist[bucket] = hist;
    if (dur < rec->min_ns) rec->min_ns = dur;
    if (dur > rec->max_ns) rec->max_ns = dur;
    label->rec->union_ns = j->union_ns;
    track->state -= 2;
    publish(&track->rec->state, track->state);
    track->depth = depth;
    track->top = frame->below;
    touch(node);
    if (LIKELY(!(frame->flags & FRAME_RESUMED))) put_event(track, node, frame->start, whole, 0);
    else put_event(track, node, frame->resumed, at - frame->resumed, EVENT_SEGMENT);
    if (LIKELY(!frame->flags)) return;
    track->misplaced -= (frame->flags & FRAME_MISPLACED) != 0;
}

/* The top is not this zone's: close down to it if it is on the stack, else note an exit without an enter. */
COLD static void exit_odd(Track *track, Zone *zone) {
    for (uint32_t i = track->depth; i-- > 0;) {
        if (track->frames[i].zone != zone) continue;
        while (track->depth > i + 1) {
            close_top(track, now());
            lose(LOSS_UNBALANCED);
            track->inherited++;
        }
        close_top(track, now());
        return;
    }
    lose(track->inherited ? LOSS_INHERITED : LOSS_STRAY_EXIT);
    if (track->inherited) track->inherited--;
}

/* An exit while nothing is recorded on this thread: nothing is made for it, only counted. */
COLD static void exit_off(Track *track) {
    if (!page->gen) return;
    lose(track->depth || track->inherited ? LOSS_INHERITED : LOSS_STRAY_EXIT);
    if (track->depth) track->depth--;
    else if (track->inherited) track->inherited--;
}

FLATTEN void span_exit(Zone *zone) {
    Track *track = self;
    if (UNLIKELY(track->gen != page->gen)) {
        exit_off(track);
        return;
    }
    uint64_t at = now();
    uint32_t depth = track->depth;
    if (LIKELY(depth && track->frames[depth - 1].zone == zone)) close_top(track, at);
    else exit_odd(track, zone);
    if (UNLIKELY(at >= edges_from) && zone->marks) tell_edge(track, 0);
}

/* Work handed over from elsewhere: spans hang below the path that handed it over until release(). */
static void adopt(uint64_t shard, uint64_t path) {
    Track *track = self;
    if (track->gen != page->gen && !(track = wake())) return;
    if (track->depth == track->room && frames_grow(track)) return;
    Zone *handoff = reserved_zones[Z_HANDOFF];
    Node *node;
    if (shard == sh.head->shard_id && path < sh.tables[PATHS].items) {
        Node *anchor = node_by_path(track, (uint32_t)path, track->root->label);
        node = anchor ? find_child(track, anchor, handoff) : NULL;
    } else {
        int64_t remote = path_remote(shard, path, handoff->label);
        node = remote >= 0 ? node_by_path(track, (uint32_t)remote, handoff->label) : NULL;
    }
    uint64_t at = now();
    settle(track, at);
    push(track, handoff, node ? node : track->overflow, at);
}

/* The work is done; until the next piece the thread is an idle worker, which is waiting. */
static void release_work(void) {
    Track *track = self;
    if (track->gen != page->gen) return;
    span_exit(reserved_zones[Z_HANDOFF]);
    if (track->depth) return;
    if (!track->idle) {
        int64_t path = path_of(0, reserved_zones[Z_IDLE]->label);
        track->idle = path >= 0 ? add_node(track, (uint32_t)path, reserved_zones[Z_IDLE]->label, track->root) : NULL;
    }
    if (!track->idle) return;
    track->top = track->idle;
    track->rec->base = track->idle->id;
}
#endif
