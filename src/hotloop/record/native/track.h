/* Tracks: one per thread, with its stack of open spans; and the session's life across threads and forks.
 *
 * What lives here: attaching a thread to a track, giving it up when the thread ends, starting, pausing and ending a
 * recording. Invariant: for every track, birth + (sum of its nodes' self time) is the instant up to which it is
 * accounted for, so a single 8-byte addition moves both and nothing can be torn. */
#ifndef HL_TRACK_H
#define HL_TRACK_H

#include <pthread.h>
#include <sys/syscall.h>
#include "tree.h"

enum { FRAME_REENTRY = 1, FRAME_MEASURED = 2, FRAME_RESUMED = 4, FRAME_MISPLACED = 8, FRAME_CHARGED = 16 };

typedef struct {
    Node *node, *below;
    Zone *zone;
    uint64_t start;
    uint32_t flags;
    uint64_t cpu_ns, rss, rss_end; /* when measured */
    uint64_t resumed;     /* when a generator went on */
    uint64_t own;         /* of its time, what was charged to the profiler */
} Frame;

enum { DECIDING = PHASE_EVAL + 1 }; /* none, collect, learn, eval: the phases an event can decide */
struct Site;
/* A model call whose phase the next event decides (see phases.h). */
typedef struct {
    Node *node;
    Zone *zones[DECIDING]; /* by phase; the hook itself may be gone by then */
    struct Site *site;
    uint32_t phase; /* as guessed */
    uint64_t own, total;
} Pending;

typedef struct Track {
    uint64_t gen; /* the recording it is attached to */
    Node *top;    /* innermost open node, or what stands for "nothing open" */
    uint64_t last, state;
    Frame *frames;
    uint32_t depth, room;
    TrackRec *rec;
    Node *root, *profiler, *overflow, *idle, *nodes;
    Map children; /* (parent node, label) -> node */
    uint32_t id, inherited;
    uint32_t misplaced; /* open frames whose node is not a child of the one below: a label may be open twice */
    uint64_t name_hash, tid;
    char name[256]; /* of its thread, kept for a reset() that another thread calls */
    struct Track *spare; /* next of the free ones */
    int retired, is_virtual;
    uint32_t inside, within_phase, phase; /* hooks that are open, the phase they say, the last event's */
    PyObject *model;                      /* the outermost model call, borrowed */
    PyObject *env;                        /* the environment whose call is the outermost here, borrowed */
    uint64_t env_calls, resets;           /* how many such calls; how many resets ended, for those that hold them */
    int listens;                          /* its result does not tell which episodes ended: those of what it steps are heard */
    uint64_t heard;                       /* so many, in the open call */
    uint32_t handed_by;                   /* the track + 1 that handed over what runs here, from inside an environment */
    uint64_t gap_mark;                    /* of the root's own time, what has its phase */
    uint32_t pending_count;
    Pending pending[PENDING];
} Track;

/* What open() was told; [1] is for child processes. */
typedef struct {
    char dir[3072], name[256];
    pid_t name_pid; /* whose name it is: a forked child must not take its parent's */
    int has_dir, is_child, clock;
    unsigned long long budget[2], ring_events[2], log_events[2], iter_units[2], sample_us[2];
    unsigned long long long_ns, costs[3], epoch, peak_method, parent_shard; /* costs: inside, outside, error, in picoseconds */
} Conf;

static struct {
    int want; /* recording is wanted; survives a fork */
    uint64_t gen;
    Track **tracks;
    uint32_t track_count, track_room;
    Track *spares;
    uint32_t iteration, unwritten, row; /* iterations counted, those of them in no row yet; rows */
    uint64_t work, work_paused_ns;      /* changes with every env step and update; time paused before the latest */
    uint64_t eval_counted;              /* env steps counted in evaluations */
    uint64_t trained;                   /* and those outside of whatever may be one */
    uint64_t trial_counted;             /* env steps counted within calls that may be an environment's */
    Node **touched;
    uint32_t touched_count, touched_room;
    EntryRec *scratch;
    uint32_t *scratch_list;
    uint32_t scratch_room, row_words_max;
    uint64_t log_left; /* events the timeline window may still take */
    EventRec *log_next, *log_end;
    BlockHead *log_block;
    uint32_t log_room; /* events the whole timeline may still take */
    EventRec *ring;
    uint64_t ring_mask, ring_head;
    uint32_t suspended_hint;
    pid_t pid;
    PyObject *yield_check, *memory_span, *decorate, *on_step;
    PyObject *counter_names[COUNTER_SLOTS];
    uint32_t counters;
    int in_loop, learned, learns, expects, episode_ended, manual_steps; /* since when iterations are told apart (see phases.h) */
    PyObject *eval_steps, *on_loop;
    int hook_counts; /* bit by counter: hooks count it */
    uint64_t lifts; /* tokens made before this changed are void */
    Conf conf;
    int last_disk_error;
    uint64_t paused_at;
} g;

/* `gen` is 0 unless recording, and the kernel zeroes this page in a forked child: one comparison tells a recording
 * thread from everything else, even after a fork that no hook saw. */
typedef struct { uint64_t gen; } Page;
static Page *page;
#define UNATTACHED UINT64_MAX /* never 0: that is what the page says while nothing records */
static Track nobody = {.gen = UNATTACHED};
static __thread Track *self __attribute__((tls_model("initial-exec"))) = &nobody;

FLATTEN void settle(Track *track, uint64_t at) {
    track->top->rec->self_ns += at - track->last;
    track->last = at;
}

/* Charge the time since the last event to the profiler itself: no open span is to blame for it. */
static void charge(Track *track, uint64_t at) {
    uint64_t own = at - track->last;
    track->profiler->rec->self_ns += own;
    track->last = at;
    for (uint32_t i = 0; i < track->depth; i++) {
        Frame *frame = &track->frames[i];
        frame->own = own + (frame->flags & FRAME_CHARGED ? frame->own : 0);
        frame->flags |= FRAME_CHARGED;
    }
}

/* Charge a reading of the kernel, but no more than it can take. On its way back from the kernel a thread is often sent to
 * wait for others that are ready (on a busy machine this made 40 % of a run "profiler"); that time is the span's. */
static void charge_reading(Track *track) {
    uint64_t done = now();
    charge(track, done - track->last > READING_MOST_NS ? track->last + READING_MOST_NS : done);
    settle(track, done);
}

COLD static void mark_touched(Node *node) {
    if (g.touched_count == g.touched_room && grow((void **)&g.touched, &g.touched_room, sizeof *g.touched)) return;
    g.touched[g.touched_count++] = node;
    node->marked_in = g.row + 1;
}

FLATTEN void touch(Node *node) {
    if (UNLIKELY(node->marked_in != g.row + 1)) mark_touched(node);
}

static Node *add_node(Track *track, uint32_t path, Label *label, Node *parent) {
    Node *node = node_new(track->id, path, label, parent);
    if (!node) return NULL;
    node->next = track->nodes;
    track->nodes = node;
    return node;
}

static Node *node_by_path(Track *track, uint32_t path, Label *label) {
    for (Node *node = track->nodes; node; node = node->next)
        if (node->path == path) return node;
    return add_node(track, path, label, NULL);
}

/* The node of `zone` below `parent`, made when it is new. Recursion leads back to the node already open above, so a
 * tree stays as small as the program's text; without room, "(more labels)" takes the span in. */
COLD static Node *find_child(Track *track, Node *parent, Zone *zone) {
    Label *label = label_of(zone);
    Node *node = (Node *)(uintptr_t)map_get(&track->children, (uintptr_t)parent, (uintptr_t)label);
    if (!node) {
        for (node = parent; node && node->label != label; node = node->parent) {}
        if (!node) {
            settle(track, now());
            int64_t path = path_of(parent->path, label);
            if (path >= 0) node = add_node(track, (uint32_t)path, label, parent);
            if (!node) node = track->overflow;
            charge(track, now()); /* making it is our time */
        }
        map_put(&track->children, (uintptr_t)parent, (uintptr_t)label, (uintptr_t)node);
    }
    zone->hit_parent = parent;
    zone->hit_node = node;
    return node;
}

/* ---- threads ---- */

/* The name Python knows this thread by, without making threading invent a dummy entry. */
static size_t thread_name(char *into, size_t room) {
    PyObject *modules = PyImport_GetModuleDict(), *threading = modules ? PyDict_GetItemString(modules, "threading") : NULL;
    PyObject *active = threading ? PyObject_GetAttrString(threading, "_active") : NULL;
    PyObject *ident = active ? PyLong_FromUnsignedLong(PyThread_get_thread_ident()) : NULL;
    PyObject *thread = ident && PyDict_Check(active) ? PyDict_GetItemWithError(active, ident) : NULL;
    PyObject *name = thread ? PyObject_GetAttrString(thread, "_name") : NULL;
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (!text) text = g.pid == (pid_t)syscall(SYS_gettid) ? "MainThread" : "thread";
    size_t bytes = strlen(text);
    if (bytes >= room) bytes = room - 1;
    memcpy(into, text, bytes);
    into[bytes] = 0;
    Py_XDECREF(name);
    Py_XDECREF(ident);
    Py_XDECREF(active);
    PyErr_Clear();
    return bytes;
}

/* Threads that differ by a number only share a track one after the other. */
static uint64_t name_hash(const char *text) {
    uint64_t h = 1469598103934665603u;
    for (; *text; text++)
        if (*text < '0' || *text > '9') h = (h ^ (uint8_t)*text) * 1099511628211u;
    return h;
}

static uint64_t self_sum(const Track *track) {
    uint64_t sum = 0;
    for (Node *node = track->nodes; node; node = node->next) sum += node->rec->self_ns;
    return sum;
}

static void begin_life(Track *track, uint64_t at) {
    TrackRec *rec = track->rec;
    uint64_t which = !rec->life;
    rec->lives[which].birth_ns = at;
    rec->lives[which].self_before = self_sum(track);
    publish(&rec->life, which);
    track->last = at;
    track->top = track->root;
    rec->base = track->root->id;
}

static int tracks_add(Track *track) {
    if (g.track_count == g.track_room && grow((void **)&g.tracks, &g.track_room, sizeof *g.tracks)) return -1;
    g.tracks[g.track_count++] = track;
    return 0;
}

/* Give a thread's track its place in the current shard. Spans still on its stack belong to an earlier recording (or
 * to the parent process); their exits will be told apart from stray ones. */
COLD static int track_attach(Track *track) {
    if (track == self) {
        track->tid = (uint64_t)syscall(SYS_gettid);
        if (!track->is_virtual) thread_name(track->name, sizeof track->name);
        else snprintf(track->name, sizeof track->name, "virtual-%d", track->is_virtual - 1);
    }
    size_t bytes = strlen(track->name);
    uint64_t at = now();
    uint32_t id;
    TrackRec *rec = item_new(TRACKS, &id);
    if (!rec) return -1;
    memset(rec, 0, 256);
    map_free(&track->children);
    track->nodes = track->idle = NULL;
    track->id = id;
    track->rec = rec;
    track->name_hash = name_hash(track->name);
    Label *root = label_of(reserved_zones[Z_ROOT]);
    track->root = add_node(track, 0, root, NULL);
    int64_t profiler = path_of(0, label_of(reserved_zones[Z_PROFILER]));
    int64_t overflow = path_of(0, label_of(reserved_zones[Z_OVERFLOW]));
    if (profiler >= 0) track->profiler = add_node(track, (uint32_t)profiler, reserved_zones[Z_PROFILER]->label, track->root);
    if (overflow >= 0) track->overflow = add_node(track, (uint32_t)overflow, reserved_zones[Z_OVERFLOW]->label, track->root);
    if (!track->root || profiler < 0 || overflow < 0 || !track->profiler || !track->overflow || tracks_add(track)) return -1;
    rec->tid = track->tid;
    rec->name = string_keep(track->name, bytes);
    rec->name_bytes = rec->name ? bytes : 0;
    rec->occupants = 1;
    rec->alive = 1;
    track->inherited += track->depth;
    track->depth = track->misplaced = track->phase = track->pending_count = 0;
    track->gap_mark = 0;
    track->state = 0;
    track->retired = 0;
    begin_life(track, at);
    item_publish(TRACKS);
    track->gen = g.gen;
    return 0;
}

static void close_top(Track *track, uint64_t at);

/* The thread is gone, or recording stops: its open spans end here, and say so. Their exits are still to come. Each
 * takes the time anew, because closing one may charge time to us. */
static void track_cut(Track *track, int why) {
    while (track->depth) {
        close_top(track, now());
        lose(why);
        track->inherited++;
    }
    settle(track, now());
    touch(track->top);
}

static Track *track_alloc(void) {
    Track *track = calloc(1, sizeof *track);
    if (track) track->gen = UNATTACHED;
    return track;
}

/* No hooked call is open here. */
static void forget_calls(Track *track) {
    track->inside = track->within_phase = track->handed_by = 0;
    track->listens = 0, track->heard = 0;
    track->model = track->env = NULL;
}

static void track_spare(Track *track) {
    track->gen = UNATTACHED;
    track->retired = track->inherited = track->depth = track->misplaced = 0;
    forget_calls(track);
    track->spare = g.spares;
    g.spares = track;
}

static void settle_ended(Track *track);

static void thread_ended(PyObject *capsule) {
    Track *track = PyCapsule_GetPointer(capsule, "hotloop.track");
    if (!track) return;
    if (self == track) self = &nobody;
    if (track->gen == g.gen && g.gen && sh.head && g.pid == getpid()) {
        if (page->gen) {
            track_cut(track, LOSS_ABANDONED);
            settle_ended(track);
        }
        track->rec->alive = 2;
        track->retired = 1;
        track->inherited = 0;
    } else {
        track_spare(track);
    }
}

/* A track for a thread seen for the first time: that of an ended thread of the same kind, or a new one. */
COLD static Track *track_for_thread(void) {
    char name[256];
    thread_name(name, sizeof name);
    uint64_t hash = name_hash(name);
    Track *track = NULL;
    uint32_t retired = 0;
    for (uint32_t i = 0; i < g.track_count; i++) {
        if (!g.tracks[i]->retired) continue;
        retired++;
        if (!track || g.tracks[i]->name_hash == hash) track = g.tracks[i];
    }
    if (track && track->name_hash != hash && retired < 64) track = NULL; /* names never seen: up to 64 free tracks */
    if (track) {
        track->retired = 0;
        forget_calls(track);
        track->pending_count = 0;
        track->gap_mark = track->root->rec->self_ns;
        begin_life(track, now());
        track->rec->tid = track->tid = (uint64_t)syscall(SYS_gettid);
        track->rec->occupants++;
        track->rec->alive = 1;
    } else if (g.spares) {
        track = g.spares;
        g.spares = track->spare;
    } else if (!(track = track_alloc())) {
        return NULL;
    }
    PyObject *dict = PyThreadState_GetDict(), *capsule = dict ? PyCapsule_New(track, "hotloop.track", thread_ended) : NULL;
    if (capsule && PyDict_SetItemString(dict, "hotloop.track", capsule)) PyErr_Clear();
    Py_XDECREF(capsule);
    PyErr_Clear();
    return track;
}

/* ---- the recording ---- */

static uint64_t process_start_ticks(void) {
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = 0;
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static uint64_t random_id(void) {
    uint64_t id = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &id, sizeof id) != sizeof id) id = 0;
        close(fd);
    }
    return (id ^ kernel_ns(CLOCK_MONOTONIC) ^ (uint64_t)getpid() << 40) | 1;
}

static void next_window(void);
static void counters_start(void);
static void sampler_start(void);
static void sampler_stop(void);

static void name_process(void) {
    sh.head->name_bytes = strlen(g.conf.name);
    publish(&sh.head->name, string_keep(g.conf.name, strlen(g.conf.name)));
}

/* The blocks no recording can do without: names, paths, and a label for what finds no room. 0 when they are there. */
static int essentials(uint64_t id, int on_disk, int *disk_error) {
    char path[4096];
    if (on_disk) snprintf(path, sizeof path, "%s/%d-%016llx.hls", g.conf.dir, (int)getpid(), (unsigned long long)id);
    if (shard_open(on_disk ? path : NULL, g.conf.budget[g.conf.is_child], disk_error)) return -1;
    label_of(reserved_zones[Z_OVERFLOW]); /* first: the others fall back on it */
    for (int i = 0; i < Z_RESERVED; i++) label_of(reserved_zones[i]);
    uint32_t root;
    PathRec *rec = item_new(PATHS, &root);
    if (rec && reserved_zones[Z_OVERFLOW]->label) {
        *rec = (PathRec){.label = reserved_zones[Z_ROOT]->label->id};
        item_publish(PATHS);
        return 0;
    }
    *disk_error = (int)sh.head->disk_errno;
    if (sh.path[0]) unlink(sh.path);
    shard_close();
    tree_forget(1);
    return -1;
}

/* Make the shard of this process and start recording; -1 when there is not even memory for it. */
COLD static int session_begin(void) {
    int is_child = g.conf.is_child, disk_error = 0, refused = 0;
    uint64_t id = random_id();
    clock_start(g.conf.clock);
    if (!g.conf.has_dir || essentials(id, 1, &disk_error)) {
        refused = disk_error;
        if (essentials(id, 0, &disk_error)) return -1;
    }
    g.last_disk_error = disk_error ? disk_error : refused;
    if (refused) {
        lose(LOSS_DISK);
        sh.head->disk_errno = (uint64_t)refused;
    }
    g.pid = getpid();
    g.gen++;
    g.track_count = g.touched_count = g.iteration = g.unwritten = g.row = 0;
    g.work = 1;
    g.work_paused_ns = 0;
    g.in_loop = g.learned = g.episode_ended = g.manual_steps = g.hook_counts = 0;
    g.learns = g.expects;
    g.log_left = 0;
    g.log_next = g.log_end = NULL;
    g.log_block = NULL;
    g.suspended_hint = 0;
    uint64_t ring_events = g.conf.ring_events[is_child];
    BlockHead *ring = block_new(RING, (uint32_t)((ring_events * sizeof(EventRec) + 2 * BLOCK_BYTES - 1) / BLOCK_BYTES));
    uint32_t iter_units = (uint32_t)g.conf.iter_units[is_child];
    BlockHead *rows = block_new(ITERATIONS, iter_units), *rows2 = rows ? block_new(ITERATIONS, iter_units) : NULL;
    g.ring = ring ? (EventRec *)(ring + 1) : NULL;
    if (ring) ring->capacity = ring_events;
    g.ring_mask = ring_events - 1;
    g.ring_head = 0;
    g.row_words_max = rows2 ? (uint32_t)(iter_units * BLOCK_BYTES / 8 - 8) : 0;
    g.log_room = (uint32_t)g.conf.log_events[is_child];
    Header *h = sh.head;
    h->pid = (uint64_t)g.pid;
    h->parent_pid = (uint64_t)getppid();
    h->shard_id = id;
    h->clock = (uint64_t)ck.kind;
    h->cost_inside_ps = g.conf.costs[0];
    h->cost_outside_ps = g.conf.costs[1];
    h->cost_error_ps = g.conf.costs[2];
    h->epoch = g.conf.epoch;
    h->parent_shard = g.conf.parent_shard;
    h->native = 1;
    h->budget = sh.limit;
    h->proc_start = process_start_ticks();
    h->peak_method = g.conf.peak_method;
    h->start_unix_ns = kernel_ns(CLOCK_REALTIME);
    h->start_ns = h->iter_start_ns = now();
    publish(&h->version, VERSION);
    counters_start();
    if (g.conf.name_pid == g.pid) name_process();
    next_window();
    page->gen = g.gen;
    sampler_start();
    return 0;
}

/* A forked child: the parent's shard is not ours. Forget it without touching the heap's locks more than we must. */
COLD static void forget_parent(void) {
    g.conf.parent_shard = sh.head->shard_id;
    g.conf.is_child = 1;
    forget_calls(self); /* those open at the fork are the parent's */
    munmap(sh.base, sh.limit);
    memset(&sh, 0, sizeof sh);
    tree_forget(0);
    g.track_count = 0;
}

/* Everything that is not the plain case: off, armed, forked, a new thread, an old track. NULL: do not record. */
COLD static Track *wake(void) {
    if (!g.want) return NULL;
    if (!page->gen) {
        int forked = sh.head && g.pid != getpid();
        if (forked) forget_parent();
        if (session_begin()) {
            g.want = 0;
            return NULL;
        }
    }
    Track *track = self;
    if (track == &nobody && !(track = track_for_thread())) {
        lose(LOSS_DROPPED_NO_TRACK);
        return NULL;
    }
    self = track;
    if (track->gen != g.gen && track_attach(track)) {
        lose(LOSS_DROPPED_NO_TRACK);
        return NULL;
    }
    return track;
}

static void label_end(Label *label, uint64_t at) {
    if (!label || !label->open) return;
    label->rec->union_ns += at - label->rec->union_start;
    label->open = 0;
}

static void session_pause(void) {
    if (!page->gen) return;
    for (uint32_t i = 0; i < g.track_count; i++)
        if (!g.tracks[i]->retired) track_cut(g.tracks[i], LOSS_CUT);
    uint64_t at = now();
    g.lifts++; /* suspended spans are lost here, and counted */
    sh.head->losses[LOSS_DROPPED_SUSPENDED] += sh.head->lifted;
    sh.head->lifted = 0;
    for (uint32_t i = 0; i < tr.zone_count; i++) label_end(tr.zones[i]->label, at);
    memset(sh.head->suspended, 0, sizeof sh.head->suspended);
    g.paused_at = at;
    page->gen = 0;
}

static void session_resume(void) {
    if (page->gen || !sh.head || g.pid != getpid()) return;
    uint64_t at = now();
    for (uint32_t i = 0; i < g.track_count; i++)
        if (!g.tracks[i]->retired) begin_life(g.tracks[i], at);
    sh.head->paused_ns += at - g.paused_at;
    sh.head->iter_start_ns += at - g.paused_at; /* the pause is not part of the iteration either */
    page->gen = g.gen;
}

static void settle_phases(int ending);
static void settle_tails(void);
static void end_iterations(void);
static void envs_end(void);

static void session_end(void) {
    sampler_stop();
    if (page->gen && g.pid == getpid()) {
        for (uint32_t i = 0; i < g.track_count; i++)
            if (!g.tracks[i]->retired) settle(g.tracks[i], now());
        settle_phases(1);
    }
    if (sh.head && g.pid == getpid()) {
        envs_end();
        end_iterations();
        if (page->gen) settle_tails();
    }
    session_pause();
    if (sh.head && g.pid != getpid()) forget_parent();
    if (!sh.head) return;
    publish(&sh.head->end_ns, g.paused_at);
    shard_close();
    tree_forget(1);
    for (uint32_t i = 0; i < g.track_count; i++) {
        g.tracks[i]->nodes = NULL;
        if (g.tracks[i]->retired) track_spare(g.tracks[i]);
    }
    g.track_count = g.touched_count = 0;
}
#endif
