/* hotloop.record._zone: the native recorder.
 *
 * What lives here: the Python face of the recorder: its functions. The machine behind it is in the headers, in the order
 * clock, shard, tree, track, hot, lift, rows, phases, environments, hooks, waits, sampler, zones, profiled.
 * `record/twin` is its twin in Python: same names, same behaviour, same file.
 *
 * Invariant: after the arguments are read, nothing here raises. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include "frames.h"
#include "hot.h"
#include "lift.h"
#include "rows.h"
#include "waits.h"
#include "sampler.h"

static PyTypeObject Zone_Type;
static Zone *zone_of(PyObject *name);
#include "hooks.h"
#include "zones.h"
#include "profiled.h"

/* ---- work ---- */

static PyObject *py_step(PyObject *module, PyObject *unused) {
    do_step(); /* it may begin the recording */
    g.manual_steps = 1;
    if (g.on_step && page->gen) {
        unsigned long long env_steps = sh.head->counters[COUNTER_ENV_STEPS].total;
        PyObject *result = PyObject_CallFunction(g.on_step, "KK", (unsigned long long)g.iteration, env_steps);
        if (!result) {
            if (!PyErr_ExceptionMatches(PyExc_Exception)) return NULL; /* Ctrl-C is the user's */
            PyErr_Clear();
            if (sh.head) lose(LOSS_INTERNAL);
        }
        Py_XDECREF(result);
        if (self->gen == page->gen) charge(self, now()); /* what was printed is our time */
    }
    Py_RETURN_NONE;
}

/* None: nobody is to be called. */
static void set_callback(PyObject **into, PyObject *callback) { Py_XSETREF(*into, callback == Py_None ? NULL : Py_NewRef(callback)); }

#define SETTER(name, into)                                                \
    static PyObject *py_set_##name(PyObject *module, PyObject *callback) { \
        set_callback(&into, callback);                                    \
        Py_RETURN_NONE;                                                   \
    }
SETTER(on_step, g.on_step)
SETTER(on_loop, g.on_loop)
SETTER(revive, revive)

/* set_on_env(mode, holds): who answers questions about environments, see environments.h. */
static PyObject *py_set_on_env(PyObject *module, PyObject *args) {
    PyObject *mode, *holds;
    if (!PyArg_ParseTuple(args, "OO", &mode, &holds)) return NULL;
    set_callback(&on_mode, mode);
    set_callback(&on_holds, holds);
    Py_RETURN_NONE;
}

static PyObject *py_set_on_edge(PyObject *module, PyObject *callback) {
    edges_from = callback == Py_None ? UINT64_MAX : 0;
    set_callback(&on_edge, callback);
    Py_RETURN_NONE;
}

static PyObject *count_work(PyObject *const *args, Py_ssize_t nargs, PyObject *keywords, int hooked) {
    Py_ssize_t named = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    if (nargs < 1 || nargs + named > 2 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(keywords, 0), "n"))) {
        PyErr_SetString(PyExc_TypeError, "count() takes a name and optionally n");
        return NULL;
    }
    if (!page->gen && !g.want) Py_RETURN_NONE;
    int64_t n = 1;
    if (nargs + named == 2) {
        PyObject *number = PyNumber_Long(args[1]); /* NumPy and torch scalars too */
        n = number ? PyLong_AsLongLong(number) : -1;
        Py_XDECREF(number);
    }
    if (PyErr_Occurred() || !PyUnicode_Check(args[0])) {
        PyErr_Clear();
        if (sh.head && page->gen) lose(LOSS_BAD_NAME);
        Py_RETURN_NONE;
    }
    do_count(args[0], n, hooked);
    Py_RETURN_NONE;
}

static PyObject *py_count(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
    return count_work(args, nargs, keywords, 0);
}

static PyObject *py_count_seen(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
    return count_work(args, nargs, keywords, 1);
}

/* ---- the recording ---- */

static PyObject *py_open(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"directory", "clock", "armed", "is_child", "budget", "child_budget", "ring_events",
                            "child_ring_events", "log_events", "child_log_events", "iter_units", "child_iter_units",
                            "long_ns", "costs", "epoch", "peak_method", "parent_shard", "sample_us", "child_sample_us", NULL};
    const char *directory = NULL;
    int armed = 0;
    Conf made = {0};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "zippKKKKKKKKK(KKK)KKKKK", names, &directory, &made.clock, &armed,
                                     &made.is_child, &made.budget[0], &made.budget[1], &made.ring_events[0], &made.ring_events[1],
                                     &made.log_events[0], &made.log_events[1], &made.iter_units[0], &made.iter_units[1],
                                     &made.long_ns, &made.costs[0], &made.costs[1], &made.costs[2], &made.epoch,
                                     &made.peak_method, &made.parent_shard, &made.sample_us[0], &made.sample_us[1]))
        return NULL;
    session_end();
    zones_prune();
    made.has_dir = directory && strlen(directory) < sizeof made.dir;
    if (made.has_dir) strcpy(made.dir, directory);
    if (!made.long_ns) made.long_ns = UINT64_MAX;
    g.conf = made;
    g.want = 1;
    g.expects = 0;
    if (!armed) wake();
    return PyBool_FromLong(g.want);
}

#define NO_ARGS(name, ...)                                     \
    static PyObject *py_##name(PyObject *module, PyObject *unused) { \
        __VA_ARGS__                                            \
    }

NO_ARGS(close, g.want = 0; session_end(); Py_RETURN_NONE;)
NO_ARGS(pause, g.want = 0; session_pause(); Py_RETURN_NONE;)
NO_ARGS(resume, g.want = 1; session_resume(); Py_RETURN_NONE;)
NO_ARGS(is_on, return PyBool_FromLong(g.want);)
NO_ARGS(attach, wake(); Py_RETURN_NONE;)
NO_ARGS(depth, return PyLong_FromUnsignedLong(self->gen == page->gen ? self->depth : 0);)
NO_ARGS(settle, if (self->gen == page->gen) settle(self, now()); Py_RETURN_NONE;)
NO_ARGS(charge, if (self->gen == page->gen) charge(self, now()); Py_RETURN_NONE;)
NO_ARGS(now, return PyLong_FromUnsignedLongLong(now());)
NO_ARGS(disk_error, return PyLong_FromLong(sh.head ? (long)sh.head->disk_errno : g.last_disk_error);)

NO_ARGS(shard, if (!sh.head || !sh.path[0] || g.pid != getpid()) Py_RETURN_NONE;
        return PyUnicode_DecodeFSDefault(sh.path);)

NO_ARGS(snapshot, if (!sh.head || g.pid != getpid()) return PyBytes_FromStringAndSize(NULL, 0);
        sh.head->losses[LOSS_CLOCK_BACK] = ck.backs; sh.head->losses[LOSS_CLOCK_STEP] = ck.steps;
        if (page->gen) for (uint32_t i = 0; i < g.track_count; i++) if (!g.tracks[i]->retired) settle(g.tracks[i], now());
        sampler_hold(1);
        PyObject *copy = PyBytes_FromStringAndSize(sh.base, (Py_ssize_t)sh.used);
        sampler_hold(0);
        return copy;)

NO_ARGS(here, if (self->gen != page->gen) Py_RETURN_NONE;
        return Py_BuildValue("KI", (unsigned long long)sh.head->shard_id, self->top->path);)

/* A new epoch: a fresh shard takes the old one's place, and the spans open now go on in it from here. */
static PyObject *py_reset(PyObject *module, PyObject *unused) {
    if (!page->gen || g.pid != getpid()) Py_RETURN_NONE;
    uint32_t count = 0, open = 0;
    for (uint32_t i = 0; i < g.track_count; i++) count += !g.tracks[i]->retired, open += g.tracks[i]->depth;
    Track **tracks = malloc((count + 1) * sizeof *tracks);
    uint32_t *depths = malloc((count + 1) * sizeof *depths);
    Zone **zones = malloc((open + 1) * sizeof *zones);
    char old[sizeof sh.path];
    strcpy(old, sh.path);
    if (!tracks || !depths || !zones) goto done;
    count = open = 0;
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *track = g.tracks[i];
        if (track->retired) continue;
        for (uint32_t d = 0; d < track->depth; d++) zones[open++] = track->frames[d].zone;
        depths[count] = track->depth;
        tracks[count++] = track;
    }
    for (uint32_t i = 0; i < count; i++) {
        track_cut(tracks[i], LOSS_CUT);
        tracks[i]->inherited -= depths[i]; /* they are carried over, not cut */
    }
    int by_hand = g.manual_steps, learns = g.learns;
    session_end();
    g.conf.epoch++;
    if (session_begin()) {
        g.want = 0;
        goto done;
    }
    g.manual_steps = by_hand;
    g.learns = learns;
    Track *mine = self;
    uint64_t told_from = edges_from;
    edges_from = UINT64_MAX; /* nothing begins here that anybody waits for */
    for (uint32_t i = 0, z = 0; i < count; i++) {
        int lost = track_attach(tracks[i]);
        for (uint32_t d = 0; d < depths[i]; d++, z++) {
            if (lost) continue;
            self = tracks[i];
            span_enter(zones[z]);
        }
    }
    self = mine;
    edges_from = told_from;
    if (old[0]) unlink(old);
done:
    free(tracks);
    free(depths);
    free(zones);
    Py_RETURN_NONE;
}

static PyObject *py_lift(PyObject *module, PyObject *args) {
    unsigned int depth;
    int running;
    if (!PyArg_ParseTuple(args, "Ip", &depth, &running)) return NULL;
    Token *token = lift(depth, running);
    if (!token) Py_RETURN_NONE;
    return (PyObject *)token;
}

static PyObject *py_lower(PyObject *module, PyObject *token) {
    if (Py_IS_TYPE(token, &Token_Type)) lower((Token *)token);
    Py_RETURN_NONE;
}

enum { CARRIED = IN_ENV | IN_TRIAL | IN_TEST };

/* What work that is handed over from here must know: the place, and whether it is part of an environment or an evaluation. */
static uint64_t around(const Track *track) {
    return (track->inside & CARRIED) | (track->within_phase == PHASE_EVAL ? (uint64_t)PHASE_EVAL << 16 : 0) |
           (uint64_t)track->handed_by << 32;
}

NO_ARGS(origin, if (self->gen != page->gen) Py_RETURN_NONE;
        uint64_t what = around(self) & 0xFFFFFFFFu;
        if (what & IN_ENV) what |= (uint64_t)(self->id + 1) << 32;
        return Py_BuildValue("KIK", (unsigned long long)sh.head->shard_id, self->top->path, (unsigned long long)what);)

static void be_around(Track *track, uint64_t what) {
    track->inside = (track->inside & ~(uint32_t)CARRIED) | ((uint32_t)what & CARRIED);
    if (track->within_phase == PHASE_EVAL || !track->within_phase) track->within_phase = (uint32_t)(what >> 16 & 0xFF);
    track->handed_by = (uint32_t)(what >> 32);
}

/* adopt(shard, path, around): answers what release() puts back. In another process environments count by themselves. */
static PyObject *py_adopt(PyObject *module, PyObject *args) {
    unsigned long long shard, path, what = 0;
    if (!PyArg_ParseTuple(args, "KK|K", &shard, &path, &what)) return NULL;
    adopt(shard, path);
    if (self->gen != page->gen) Py_RETURN_NONE;
    uint64_t before = around(self);
    if (what && shard == sh.head->shard_id) be_around(self, what);
    return PyLong_FromUnsignedLongLong(before);
}

static PyObject *py_release(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs && PyLong_Check(args[0]) && self != &nobody) be_around(self, PyLong_AsUnsignedLongLong(args[0]));
    PyErr_Clear();
    release_work();
    Py_RETURN_NONE;
}

/* What a span with track_memory saw, for the innermost open span. */
static PyObject *py_note_memory(PyObject *module, PyObject *args) {
    unsigned long long rise, rss, peak;
    int true_peak;
    if (!PyArg_ParseTuple(args, "KKKp", &rise, &rss, &peak, &true_peak)) return NULL;
    if (self->gen != page->gen || !self->depth) Py_RETURN_NONE;
    Node *node = self->top;
    NodeRec *rec = node->rec;
    if (rise > rec->mem_rise_max) rec->mem_rise_max = rise;
    rec->mem_rise_sum += rise;
    if (peak > rec->mem_rss_max) rec->mem_rss_max = peak;
    if (true_peak) rec->mem_peak_calls++;
    else rec->mem_end_calls++;
    SnapshotRec *snapshot = &sh.head->snapshots[sh.head->snapshot_count % SNAPSHOT_SLOTS];
    *snapshot = (SnapshotRec){now(), node->path, rss, peak};
    publish(&sh.head->snapshot_count, sh.head->snapshot_count + 1);
    Py_RETURN_NONE;
}

/* The device's memory peak in the innermost open span. */
static PyObject *py_note_gpu_peak(PyObject *module, PyObject *bytes) {
    unsigned long long peak = PyLong_AsUnsignedLongLong(bytes);
    if (PyErr_Occurred()) return NULL;
    if (self->gen == page->gen && self->depth && peak > self->top->rec->gpu_peak) self->top->rec->gpu_peak = peak;
    Py_RETURN_NONE;
}

static PyObject *py_lose(PyObject *module, PyObject *args) {
    unsigned int why;
    if (!PyArg_ParseTuple(args, "I", &why)) return NULL;
    if (sh.head && g.pid == getpid() && why < LOSS_KINDS) lose((int)why);
    Py_RETURN_NONE;
}

/* Name this process: in its shard, or in the one it will make. */
static PyObject *py_name_process(PyObject *module, PyObject *args) {
    const char *text;
    if (!PyArg_ParseTuple(args, "s", &text)) return NULL;
    snprintf(g.conf.name, sizeof g.conf.name, "%s", text);
    g.conf.name_pid = getpid();
    if (sh.head && g.pid == getpid()) name_process();
    Py_RETURN_NONE;
}

static PyObject *py_set_callbacks(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"yield_check", "memory_span", "decorate", NULL};
    PyObject *yield_check, *memory_span, *decorate;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO", names, &yield_check, &memory_span, &decorate)) return NULL;
    set_callback(&g.yield_check, yield_check);
    set_callback(&g.memory_span, memory_span);
    set_callback(&g.decorate, decorate);
    Py_RETURN_NONE;
}

/* ---- for tests: a clock and threads that are moved by hand ---- */

static PyObject *py_set_time(PyObject *module, PyObject *args) {
    unsigned long long ns, tick = 0;
    if (!PyArg_ParseTuple(args, "K|K", &ns, &tick)) return NULL;
    ck.test_ns = ns;
    ck.test_tick = tick;
    Py_RETURN_NONE;
}

static PyObject *py_use_track(PyObject *module, PyObject *args) {
    static Track *virtual_tracks[64], *real;
    int which;
    if (!PyArg_ParseTuple(args, "i", &which)) return NULL;
    if (!real) real = self;
    if (which < 0 || which >= 64) {
        self = real;
        real = NULL;
        Py_RETURN_NONE;
    }
    if (!virtual_tracks[which] && (virtual_tracks[which] = track_alloc())) virtual_tracks[which]->is_virtual = which + 1;
    if (virtual_tracks[which]) self = virtual_tracks[which];
    wake();
    Py_RETURN_NONE;
}

/* End a virtual thread, as the interpreter would a real one. */
static PyObject *py_end_track(PyObject *module, PyObject *unused) {
    if (self->gen == page->gen) {
        track_cut(self, LOSS_ABANDONED);
        settle_ended(self);
        self->rec->alive = 2;
        self->inherited = 0;
        begin_life(self, now());
    }
    Py_RETURN_NONE;
}

#ifdef HOTLOOP_CHECKS
/* fail_nth(n): the nth call that can fail does; answers how many there were since the last time. */
static PyObject *py_fail_nth(PyObject *module, PyObject *args) {
    unsigned long n, calls = fault_calls;
    if (!PyArg_ParseTuple(args, "k", &n)) return NULL;
    faults_left = n;
    fault_calls = 0;
    return PyLong_FromUnsignedLong(calls);
}
NO_ARGS(dump_coverage, if (__gcov_dump) __gcov_dump(); Py_RETURN_NONE;)
#endif

/* ---- module ---- */

static PyMethodDef functions[] = {
    {"profile", (PyCFunction)(void (*)(void))py_profile, METH_FASTCALL | METH_KEYWORDS,
     "profile(name, track_memory=False)\n--\n\nA named region, as a context manager or a decorator."},
    {"wrap", py_wrap, METH_VARARGS, NULL},
    {"step", py_step, METH_NOARGS, "step()\n--\n\nClose the current iteration of the training loop."},
    {"count", (PyCFunction)(void (*)(void))py_count, METH_FASTCALL | METH_KEYWORDS,
     "count(name, n=1)\n--\n\nAdd to a work counter of the current iteration."},
    {"count_seen", (PyCFunction)(void (*)(void))py_count_seen, METH_FASTCALL | METH_KEYWORDS, NULL},
    {"open", (PyCFunction)(void (*)(void))py_open, METH_VARARGS | METH_KEYWORDS, NULL},
    {"close", py_close, METH_NOARGS, NULL},
    {"pause", py_pause, METH_NOARGS, NULL},
    {"resume", py_resume, METH_NOARGS, NULL},
    {"reset", py_reset, METH_NOARGS, NULL},
    {"is_on", py_is_on, METH_NOARGS, NULL},
    {"attach", py_attach, METH_NOARGS, NULL},
    {"depth", py_depth, METH_NOARGS, NULL},
    {"lift", py_lift, METH_VARARGS, NULL},
    {"lower", py_lower, METH_O, NULL},
    {"here", py_here, METH_NOARGS, NULL},
    {"origin", py_origin, METH_NOARGS, NULL},
    {"adopt", py_adopt, METH_VARARGS, NULL},
    {"release", (PyCFunction)(void (*)(void))py_release, METH_FASTCALL, NULL},
    {"settle", py_settle, METH_NOARGS, NULL},
    {"charge", py_charge, METH_NOARGS, NULL},
    {"now", py_now, METH_NOARGS, NULL},
    {"note_memory", py_note_memory, METH_VARARGS, NULL},
    {"note_gpu_peak", py_note_gpu_peak, METH_O, NULL},
    {"lose", py_lose, METH_VARARGS, NULL},
    {"name_process", py_name_process, METH_VARARGS, NULL},
    {"snapshot", py_snapshot, METH_NOARGS, NULL},
    {"shard", py_shard, METH_NOARGS, NULL},
    {"disk_error", py_disk_error, METH_NOARGS, NULL},
    {"hook_waits", hook_waits, METH_NOARGS, NULL},
    {"unhook_waits", unhook_waits, METH_NOARGS, NULL},
    {"hook_writes", hook_writes, METH_NOARGS, NULL},
    {"hook_rusage", hook_rusage, METH_O, NULL},
    {"zone", py_zone, METH_VARARGS, NULL},
    {"hook", py_hook, METH_VARARGS, NULL},
    {"within", py_within, METH_VARARGS, NULL},
    {"phases_start", py_phases_start, METH_VARARGS, NULL},
    {"watch_classes", py_watch_classes, METH_VARARGS, NULL},
    {"gc_pause", (PyCFunction)(void (*)(void))py_gc_pause, METH_FASTCALL, NULL},
    {"set_on_loop", py_set_on_loop, METH_O, NULL},
    {"set_on_edge", py_set_on_edge, METH_O, NULL},
    {"expect_updates", py_expect_updates, METH_NOARGS, NULL},
    {"set_on_env", py_set_on_env, METH_VARARGS, NULL},
    {"set_revive", py_set_revive, METH_O, NULL},
    {"set_on_step", py_set_on_step, METH_O, NULL},
    {"set_callbacks", (PyCFunction)(void (*)(void))py_set_callbacks, METH_VARARGS | METH_KEYWORDS, NULL},
    {"set_time", py_set_time, METH_VARARGS, NULL},
    {"use_track", py_use_track, METH_VARARGS, NULL},
    {"end_track", py_end_track, METH_NOARGS, NULL},
#ifdef HOTLOOP_CHECKS
    {"fail_nth", py_fail_nth, METH_VARARGS, NULL},
    {"dump_coverage", py_dump_coverage, METH_NOARGS, NULL},
#endif
    {0}};

static void forked_child(void) {
    if (page) page->gen = 0;
}

static int page_start(void) {
    page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return -1;
#ifdef MADV_WIPEONFORK
    madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
#endif
    return pthread_atfork(NULL, NULL, forked_child); /* for kernels without it */
}

static int add_finder(const char *name, int is_exit) {
    Finder *finder = PyObject_New(Finder, &Finder_Type);
    if (!finder) return -1;
    finder->is_exit = is_exit;
    int bad = PyDict_SetItemString(Zone_Type.tp_dict, name, (PyObject *)finder);
    Py_DECREF(finder);
    return bad;
}

static int exec_module(PyObject *module) {
    if (page_start()) return PyErr_NoMemory(), -1;
    PyTypeObject *types[] = {&Finder_Type, &Enter_Type, &Exit_Type, &Zone_Type, &Profiled_Type, &Token_Type, &Hooked_Type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyType_Ready(types[i])) return -1;
    if (add_finder("__enter__", 0) || add_finder("__exit__", 1)) return -1;
    PyType_Modified(&Zone_Type);
    zones_by_name = PyDict_New();
    no_wait = PyTuple_Pack(1, Py_False);
    g.eval_steps = PyUnicode_InternFromString("eval_env_steps");
    for (int i = 0; i < WORK_COUNTERS; i++) said_names[i] = PyUnicode_FromFormat("~said_%s", COUNTERS[i]);
    if (!zones_by_name || !no_wait || !g.eval_steps) return -1;
    for (int i = 0; i < Z_RESERVED; i++) {
        PyObject *name = PyUnicode_FromString(RESERVED[i].name);
        reserved_zones[i] = name ? zone_new(name, RESERVED[i].kind) : NULL;
        Py_XDECREF(name);
        if (!reserved_zones[i]) return -1;
    }
    reserved_zones[Z_WRITE]->phase = PHASE_LOG;
    reserved_zones[Z_WRITE]->owns = 1;
    return PyModule_AddObjectRef(module, "Zone", (PyObject *)&Zone_Type) || PyModule_AddObjectRef(module, "NATIVE", Py_True) ? -1 : 0;
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hotloop.record._zone", "The native recorder.", -1, functions,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__zone(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module && exec_module(module)) Py_CLEAR(module);
    return module;
}
