/* hotloop.record._zone: the native recorder.
 *
 * What lives here: the Python face of the recorder: zones, profiled functions and module functions. The machine behind
 * it is in the headers, in the order clock, shard, tree, track, hot, lift, rows, phases, hooks, waits, sampler.
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

/* ---- zones ---- */

static PyTypeObject Zone_Type, Enter_Type, Exit_Type, Profiled_Type;
static PyObject *zones_by_name;

/* The last zone for each string object seen: names are literals, so the pointer is the key nearly always. */
#define CACHE 1024
static struct { PyObject *name; Zone *zone; } cache[CACHE];
FLATTEN size_t cache_slot(PyObject *name) { return ((uintptr_t)name >> 4 ^ (uintptr_t)name >> 14) & (CACHE - 1); }

static PyObject *enter_call(PyObject *half, PyObject *const *a, size_t n, PyObject *k) {
    (void)a, (void)n, (void)k;
    Zone *zone = ((Half *)half)->zone;
    if (page->gen || g.want) span_enter(zone);
    return Py_NewRef((PyObject *)zone);
}

static PyObject *exit_call(PyObject *half, PyObject *const *a, size_t n, PyObject *k) {
    (void)a, (void)n, (void)k;
    span_exit(((Half *)half)->zone);
    Py_RETURN_NONE;
}

static Half *half_new(PyTypeObject *type, vectorcallfunc call, Zone *zone) {
    Half *half = PyObject_New(Half, type);
    if (half) {
        half->call = call;
        half->zone = zone;
    }
    return half;
}

static Zone *zone_new(PyObject *name, uint32_t kind) {
    Zone *zone = PyObject_New(Zone, &Zone_Type);
    if (!zone) return NULL;
    *zone = (Zone){.ob_base = zone->ob_base, .name = Py_NewRef(name), .check = 1, .kind = kind};
    zone->enter = half_new(&Enter_Type, enter_call, zone);
    zone->exit = half_new(&Exit_Type, exit_call, zone);
    if (tr.zone_count == tr.zone_room) {
        uint32_t room = tr.zone_room ? tr.zone_room * 2 : 64;
        Zone **grown = realloc(tr.zones, room * sizeof *grown);
        if (grown) tr.zones = grown;
        tr.zone_room = grown ? room : tr.zone_room;
    }
    if (!zone->enter || !zone->exit || tr.zone_count == tr.zone_room) {
        Py_DECREF(zone);
        return (Zone *)PyErr_NoMemory();
    }
    tr.zones[tr.zone_count++] = (Zone *)Py_NewRef((PyObject *)zone); /* zones live as long as the process */
    return zone;
}

/* Where a span is opened, if its label has no place yet. */
COLD static void note_site(Zone *zone, PyFrameObject *frame) {
    if (!frame) return;
    PyCodeObject *code = PyFrame_GetCode(frame);
    zone->site = PyUnicode_FromFormat("%U:%d", code->co_filename, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    if (!zone->site) PyErr_Clear();
    label_place(zone);
}

/* The zone of a name (a new reference). Whatever is no string becomes one. */
COLD static Zone *zone_of(PyObject *name) {
    PyObject *text;
    if (PyUnicode_CheckExact(name)) text = Py_NewRef(name);
    else {
        if (sh.head && page->gen) lose(LOSS_BAD_NAME);
        text = PyUnicode_Check(name) ? PyUnicode_FromObject(name) : PyObject_Str(name);
        if (!text) {
            PyErr_Clear();
            text = PyUnicode_FromString("(unnamed)");
        }
        if (!text) return NULL;
    }
    Zone *zone = (Zone *)PyDict_GetItemWithError(zones_by_name, text);
    if (!zone && PyDict_GET_SIZE(zones_by_name) < MAX_ZONES) {
        zone = zone_new(text, KIND_USER);
        if (zone) zone->marks = 1;
        if (zone && PyDict_SetItem(zones_by_name, text, (PyObject *)zone)) PyErr_Clear();
        Py_XDECREF(zone); /* tr.zones keeps it */
    } else if (!zone) {
        zone = reserved_zones[Z_OVERFLOW];
    }
    if (zone && text == name) {
        size_t slot = cache_slot(name);
        Py_XSETREF(cache[slot].name, Py_NewRef(name));
        cache[slot].zone = zone;
    }
    Py_DECREF(text);
    return (Zone *)Py_XNewRef((PyObject *)zone);
}

/* A new recording begins: names that nobody holds make room, so that a flood of names in one does not spoil the next. A `with`
 * that is open now holds only one half of its zone. */
static int zone_held(Zone *zone) {
    return zone->kind != KIND_USER || Py_REFCNT(zone) != 2 || Py_REFCNT(zone->enter) != 1 || Py_REFCNT(zone->exit) != 1;
}

static void zones_prune(void) {
    if (tr.zone_count <= MAX_ZONES / 2) return;
    for (size_t i = 0; i < CACHE; i++) Py_CLEAR(cache[i].name);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < tr.zone_count; i++) {
        Zone *zone = tr.zones[i];
        if (!zone_held(zone) && !PyDict_DelItem(zones_by_name, zone->name)) Py_DECREF(zone);
        else tr.zones[kept++] = zone;
    }
    PyErr_Clear();
    tr.zone_count = kept;
}

static PyObject *py_profile(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
    (void)module;
    if (LIKELY(nargs == 1 && !keywords)) {
        size_t slot = cache_slot(args[0]);
        if (LIKELY(cache[slot].name == args[0])) return Py_NewRef((PyObject *)cache[slot].zone);
        return (PyObject *)zone_of(args[0]);
    }
    PyObject *name = nargs > 0 ? args[0] : NULL, *memory = nargs > 1 ? args[1] : NULL;
    Py_ssize_t extra = keywords ? PyTuple_GET_SIZE(keywords) : 0;
    for (Py_ssize_t i = 0; i < extra; i++) {
        PyObject *key = PyTuple_GET_ITEM(keywords, i), **into;
        if (PyUnicode_CompareWithASCIIString(key, "name") == 0) into = &name;
        else if (PyUnicode_CompareWithASCIIString(key, "track_memory") == 0) into = &memory;
        else return PyErr_Format(PyExc_TypeError, "profile() got an unexpected keyword argument '%U'", key);
        if (*into) return PyErr_Format(PyExc_TypeError, "profile() got multiple values for argument '%U'", key);
        *into = args[nargs + i];
    }
    if (!name || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "profile() takes a name and optionally track_memory");
        return NULL;
    }
    int wants = memory ? PyObject_IsTrue(memory) : 0;
    if (wants < 0) return NULL;
    Zone *zone = zone_of(name);
    if (!zone || !wants || !g.memory_span) return (PyObject *)zone;
    if (!zone->site) note_site(zone, PyEval_GetFrame()); /* it will be opened by a frame of ours */
    PyObject *span = PyObject_CallOneArg(g.memory_span, (PyObject *)zone);
    Py_DECREF(zone);
    return span;
}

static void zone_dealloc(Zone *zone) {
    Py_XDECREF(zone->name);
    Py_XDECREF(zone->enter);
    Py_XDECREF(zone->exit);
    Py_XDECREF(zone->checked_code);
    Py_XDECREF(zone->site);
    PyObject_Free(zone);
}

static PyObject *zone_repr(Zone *zone) { return PyUnicode_FromFormat("profile(%R)", zone->name); }

static PyObject *profiled_new(Zone *zone, PyObject *function);

static PyObject *zone_decorate(Zone *zone, PyObject *args, PyObject *keywords) {
    PyObject *function;
    if ((keywords && PyDict_GET_SIZE(keywords)) || !PyArg_UnpackTuple(args, "profile", 1, 1, &function)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a decorator takes one function");
        return NULL;
    }
    if (g.decorate) return PyObject_CallFunctionObjArgs(g.decorate, (PyObject *)zone, function, NULL);
    return profiled_new(zone, function);
}

static PyMemberDef zone_members[] = {
    {"name", T_OBJECT, offsetof(Zone, name), READONLY, "The label."},
    {"site", T_OBJECT, offsetof(Zone, site), 0, "file:line it comes from, or None."},
    {0},
};

static PyTypeObject Zone_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone.Zone",
    .tp_basicsize = sizeof(Zone),
    .tp_dealloc = (destructor)zone_dealloc,
    .tp_repr = (reprfunc)zone_repr,
    .tp_call = (ternaryfunc)zone_decorate,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = zone_members,
    .tp_doc = "A named region: a context manager and a decorator, shared by all threads.",
};

/* The halves are callables made once; `with` finds them through a descriptor that hands out the zone's own. */
static void half_dealloc(PyObject *half) { PyObject_Free(half); }
#define HALF_TYPE(NAME)                                          \
    static PyTypeObject NAME##_Type = {                          \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone." #NAME, \
        .tp_basicsize = sizeof(Half),                            \
        .tp_dealloc = half_dealloc,                              \
        .tp_vectorcall_offset = offsetof(Half, call),            \
        .tp_call = PyVectorcall_Call,                            \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, \
    }
HALF_TYPE(Enter);
HALF_TYPE(Exit);

typedef struct { PyObject_HEAD int is_exit; } Finder;
static PyObject *finder_get(PyObject *finder, PyObject *zone, PyObject *type) {
    (void)type;
    if (!zone) return Py_NewRef(finder);
    Half *half = ((Finder *)finder)->is_exit ? ((Zone *)zone)->exit : ((Zone *)zone)->enter;
    return Py_NewRef((PyObject *)half);
}
/* `type(zone).__enter__(zone)`, as contextlib.ExitStack calls it. */
static PyObject *finder_call(PyObject *finder, PyObject *args, PyObject *keywords) {
    PyObject *zone = PyTuple_GET_SIZE(args) ? PyTuple_GET_ITEM(args, 0) : NULL;
    if (!zone || !PyObject_TypeCheck(zone, &Zone_Type)) {
        PyErr_SetString(PyExc_TypeError, "the first argument must be a profile() region");
        return NULL;
    }
    PyObject *half = finder_get(finder, zone, NULL), *rest = PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args));
    PyObject *result = rest ? PyObject_Call(half, rest, keywords) : NULL;
    Py_DECREF(half);
    Py_XDECREF(rest);
    return result;
}
static PyTypeObject Finder_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone.Finder",
    .tp_basicsize = sizeof(Finder),
    .tp_call = finder_call,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_descr_get = finder_get,
};

/* Once in a while: is this span opened by a generator that yields inside it? Then its time is not its own. */
COLD static void look_at_caller(Zone *zone) {
    zone->check = ++zone->checked < 16 ? 1 : 1024;
    PyFrameObject *frame = zone->kind == KIND_USER ? PyEval_GetFrame() : NULL;
    if (!frame) return;
    if (!zone->site) note_site(zone, frame);
    PyCodeObject *code = PyFrame_GetCode(frame);
    int suspends = code->co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR);
    if (suspends && g.yield_check && zone->checked_code != (PyObject *)code) {
        Py_XSETREF(zone->checked_code, Py_NewRef((PyObject *)code));
        PyObject *site = PyObject_CallFunction(g.yield_check, "Oi", code, PyFrame_GetLasti(frame));
        const char *text = site && PyUnicode_Check(site) ? PyUnicode_AsUTF8(site) : NULL;
        if (text && zone->label && page->gen) {
            LabelRec *rec = zone->label->rec;
            rec->site = string_keep(text, strlen(text));
            rec->site_bytes = rec->site ? strlen(text) : 0;
            rec->flags |= FLAG_HELD_ACROSS_YIELD;
        }
        if (!site) swallow_error();
        Py_XDECREF(site);
        PyErr_Clear();
    }
    Py_DECREF(code);
}

/* ---- profiled functions ---- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak;
    Zone *zone;
} Profiled;

static PyObject *profiled_call(PyObject *object, PyObject *const *args, size_t nargs, PyObject *keywords) {
    Profiled *profiled = (Profiled *)object;
    if (!page->gen && !g.want) return PyObject_Vectorcall(profiled->function, args, nargs, keywords);
    span_enter(profiled->zone);
    PyObject *result = PyObject_Vectorcall(profiled->function, args, nargs, keywords);
    span_exit(profiled->zone);
    return result;
}

static PyObject *profiled_new(Zone *zone, PyObject *function) {
    Profiled *profiled = PyObject_GC_New(Profiled, &Profiled_Type);
    if (!profiled) return NULL;
    profiled->call = profiled_call;
    profiled->function = Py_NewRef(function);
    profiled->dict = profiled->weak = NULL;
    profiled->zone = (Zone *)Py_NewRef((PyObject *)zone);
    PyObject_GC_Track(profiled);
    return (PyObject *)profiled;
}

static int profiled_traverse(Profiled *profiled, visitproc visit, void *arg) {
    Py_VISIT(profiled->function);
    Py_VISIT(profiled->dict);
    return 0;
}

static int profiled_clear(Profiled *profiled) {
    Py_CLEAR(profiled->function);
    Py_CLEAR(profiled->dict);
    return 0;
}

static void profiled_dealloc(Profiled *profiled) {
    PyObject_GC_UnTrack(profiled);
    if (profiled->weak) PyObject_ClearWeakRefs((PyObject *)profiled);
    profiled_clear(profiled);
    Py_DECREF(profiled->zone);
    PyObject_GC_Del(profiled);
}

static PyObject *profiled_get(PyObject *profiled, PyObject *object, PyObject *type) {
    (void)type;
    return object && object != Py_None ? PyMethod_New(profiled, object) : Py_NewRef(profiled);
}

/* Pickled by name, as functions are. */
static PyObject *profiled_reduce(PyObject *profiled, PyObject *unused) {
    (void)unused;
    return PyObject_GetAttrString(profiled, "__qualname__");
}

static PyObject *profiled_repr(Profiled *profiled) {
    return PyUnicode_FromFormat("<profiled %R as %R>", profiled->function, profiled->zone->name);
}

static PyMethodDef profiled_methods[] = {{"__reduce__", profiled_reduce, METH_NOARGS, NULL}, {0}};
static PyGetSetDef profiled_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};

static PyTypeObject Profiled_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone.Profiled",
    .tp_basicsize = sizeof(Profiled),
    .tp_dealloc = (destructor)profiled_dealloc,
    .tp_repr = (reprfunc)profiled_repr,
    .tp_vectorcall_offset = offsetof(Profiled, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = PyObject_GenericGetAttr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_traverse = (traverseproc)profiled_traverse,
    .tp_clear = (inquiry)profiled_clear,
    .tp_weaklistoffset = offsetof(Profiled, weak),
    .tp_methods = profiled_methods,
    .tp_getset = profiled_getset,
    .tp_descr_get = profiled_get,
    .tp_dictoffset = offsetof(Profiled, dict),
    .tp_doc = "A function whose calls are spans.",
};

static PyObject *py_wrap(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *zone, *function;
    if (!PyArg_ParseTuple(args, "O!O", &Zone_Type, &zone, &function)) return NULL;
    return profiled_new((Zone *)zone, function);
}

/* ---- work ---- */

static PyObject *py_step(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    do_step(); /* it may begin the recording */
    g.manual_steps = 1;
    if (g.on_step && page->gen) {
        unsigned long long env_steps = sh.head->counters[0].total; /* the first reserved name */
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

static PyObject *py_set_on_step(PyObject *module, PyObject *callback) {
    (void)module;
    Py_XSETREF(g.on_step, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

static PyObject *py_set_on_loop(PyObject *module, PyObject *callback) {
    (void)module;
    Py_XSETREF(g.on_loop, callback == Py_None ? NULL : Py_NewRef(callback));
    Py_RETURN_NONE;
}

static PyObject *py_set_on_edge(PyObject *module, PyObject *callback) {
    (void)module;
    edges_from = callback == Py_None ? UINT64_MAX : 0;
    Py_XSETREF(on_edge, callback == Py_None ? NULL : Py_NewRef(callback));
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
    (void)module;
    return count_work(args, nargs, keywords, 0);
}

static PyObject *py_count_seen(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
    (void)module;
    return count_work(args, nargs, keywords, 1);
}

/* ---- the recording ---- */

static PyObject *py_open(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    static char *names[] = {"directory", "clock", "armed", "is_child", "budget", "child_budget", "ring_events",
                            "child_ring_events", "log_events", "child_log_events", "iter_units", "child_iter_units",
                            "long_ns", "costs", "epoch", "peak_method", "parent_shard", "sample_us", "child_sample_us", NULL};
    const char *directory = NULL;
    int clock = 0, armed = 0, is_child = 0;
    unsigned long long budget, child_budget, ring, child_ring, log, child_log, units, child_units, long_ns;
    unsigned long long inside, outside, error, epoch, peak_method, parent, sample, child_sample;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "zippKKKKKKKKK(KKK)KKKKK", names, &directory, &clock, &armed, &is_child,
                                     &budget, &child_budget, &ring, &child_ring, &log, &child_log, &units, &child_units,
                                     &long_ns, &inside, &outside, &error, &epoch, &peak_method, &parent, &sample, &child_sample))
        return NULL;
    session_end();
    zones_prune();
    memset(&g.conf, 0, sizeof g.conf);
    g.conf.has_dir = directory && strlen(directory) < sizeof g.conf.dir;
    if (g.conf.has_dir) strcpy(g.conf.dir, directory);
    g.conf.clock = clock;
    g.conf.is_child = is_child;
    g.conf.budget = budget, g.conf.child_budget = child_budget;
    g.conf.ring_events = ring, g.conf.child_ring_events = child_ring;
    g.conf.log_events = log, g.conf.child_log_events = child_log;
    g.conf.iter_units = units, g.conf.child_iter_units = child_units;
    g.conf.long_ns = long_ns ? long_ns : UINT64_MAX;
    g.conf.cost_inside_ps = inside, g.conf.cost_outside_ps = outside, g.conf.cost_error_ps = error;
    g.conf.epoch = epoch, g.conf.peak_method = peak_method, g.conf.parent_shard = parent;
    g.conf.sample_us = sample, g.conf.child_sample_us = child_sample;
    g.want = 1;
    g.expects = 0;
    if (!armed) wake();
    return PyBool_FromLong(g.want);
}

#define NO_ARGS(name, ...)                                     \
    static PyObject *py_##name(PyObject *module, PyObject *unused) { \
        (void)module, (void)unused;                            \
        __VA_ARGS__                                            \
    }

NO_ARGS(close, g.want = 0; session_end(); Py_RETURN_NONE;)
NO_ARGS(pause, g.want = 0; session_pause(); Py_RETURN_NONE;)
NO_ARGS(resume, g.want = 1; session_resume(); Py_RETURN_NONE;)
NO_ARGS(is_on, return PyBool_FromLong(g.want);)
NO_ARGS(attach, wake(); Py_RETURN_NONE;)
NO_ARGS(depth, return PyLong_FromUnsignedLong(self->gen == page->gen ? self->depth : 0);)
NO_ARGS(release, release_work(); Py_RETURN_NONE;)
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
    (void)module, (void)unused;
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
    (void)module;
    unsigned int depth;
    int running;
    if (!PyArg_ParseTuple(args, "Ip", &depth, &running)) return NULL;
    Token *token = lift(depth, running);
    if (!token) Py_RETURN_NONE;
    return (PyObject *)token;
}

static PyObject *py_lower(PyObject *module, PyObject *token) {
    (void)module;
    if (Py_IS_TYPE(token, &Token_Type)) lower((Token *)token);
    Py_RETURN_NONE;
}

static PyObject *py_adopt(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long shard, path;
    if (!PyArg_ParseTuple(args, "KK", &shard, &path)) return NULL;
    adopt(shard, path);
    Py_RETURN_NONE;
}

/* What a span with track_memory saw, for the innermost open span. */
static PyObject *py_note_memory(PyObject *module, PyObject *args) {
    (void)module;
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
    (void)module;
    unsigned long long peak = PyLong_AsUnsignedLongLong(bytes);
    if (PyErr_Occurred()) return NULL;
    if (self->gen == page->gen && self->depth && peak > self->top->rec->gpu_peak) self->top->rec->gpu_peak = peak;
    Py_RETURN_NONE;
}

static PyObject *py_lose(PyObject *module, PyObject *args) {
    (void)module;
    unsigned int why;
    if (!PyArg_ParseTuple(args, "I", &why)) return NULL;
    if (sh.head && g.pid == getpid() && why < LOSS_KINDS) lose((int)why);
    Py_RETURN_NONE;
}

/* Name this process: in its shard, or in the one it will make. */
static PyObject *py_name_process(PyObject *module, PyObject *args) {
    (void)module;
    const char *text;
    if (!PyArg_ParseTuple(args, "s", &text)) return NULL;
    snprintf(g.conf.name, sizeof g.conf.name, "%s", text);
    g.conf.name_pid = getpid();
    if (sh.head && g.pid == getpid()) name_process();
    Py_RETURN_NONE;
}

static PyObject *py_set_callbacks(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    static char *names[] = {"yield_check", "memory_span", "decorate", NULL};
    PyObject *yield_check, *memory_span, *decorate;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO", names, &yield_check, &memory_span, &decorate)) return NULL;
    Py_XSETREF(g.yield_check, yield_check == Py_None ? NULL : Py_NewRef(yield_check));
    Py_XSETREF(g.memory_span, memory_span == Py_None ? NULL : Py_NewRef(memory_span));
    Py_XSETREF(g.decorate, decorate == Py_None ? NULL : Py_NewRef(decorate));
    Py_RETURN_NONE;
}

/* ---- for tests: a clock and threads that are moved by hand ---- */

static PyObject *py_set_time(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long ns, tick = 0;
    if (!PyArg_ParseTuple(args, "K|K", &ns, &tick)) return NULL;
    ck.test_ns = ns;
    ck.test_tick = tick;
    Py_RETURN_NONE;
}

static PyObject *py_use_track(PyObject *module, PyObject *args) {
    (void)module;
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
    (void)module, (void)unused;
    if (self->gen == page->gen) {
        track_cut(self, LOSS_ABANDONED);
        settle_ended(self);
        self->rec->alive = 2;
        self->inherited = 0;
        begin_life(self, now());
    }
    Py_RETURN_NONE;
}

#define OFFSET(type, field) (Py_ssize_t)(offsetof(type, field) / 8)
static PyObject *py_layout(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    return Py_BuildValue(
        "{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}",
        "H_VERSION", OFFSET(Header, version), "H_END_NS", OFFSET(Header, end_ns), "H_EPOCH", OFFSET(Header, epoch),
        "H_ITER_STATE", OFFSET(Header, iter_state), "H_RING_HEAD", OFFSET(Header, ring_head),
        "H_NATIVE", OFFSET(Header, native), "H_LIFTED", OFFSET(Header, lifted), "H_PAUSED_NS", OFFSET(Header, paused_ns), "H_LOSSES", OFFSET(Header, losses),
        "H_COUNTERS", OFFSET(Header, counters), "H_SUSPENDED", OFFSET(Header, suspended),
        "H_SNAPSHOTS", OFFSET(Header, snapshot_count), "HEAD_USED", OFFSET(BlockHead, used),
        "L_UNION_NS", OFFSET(LabelRec, union_ns), "L_SITE", OFFSET(LabelRec, site),
        "P_ORIGIN_PATH", OFFSET(PathRec, origin_path), "N_COUNT", OFFSET(NodeRec, count),
        "N_SUMSQ", OFFSET(NodeRec, sumsq), "N_CPU_NS", OFFSET(NodeRec, cpu_ns), "N_MEM_CALLS", OFFSET(NodeRec, mem_peak_calls),
        "N_GPU_PEAK", OFFSET(NodeRec, gpu_peak), "N_HIST", OFFSET(NodeRec, hist), "T_LIVES", OFFSET(TrackRec, lives),
        "T_OCCUPANTS", OFFSET(TrackRec, occupants), "T_JOURNAL", OFFSET(TrackRec, journal),
        "T_FRAMES", OFFSET(TrackRec, frames), "E_WHERE", OFFSET(EventRec, path), "LOSSES", (Py_ssize_t)LOSS_KINDS,
        "H_ENVS", OFFSET(Header, envs), "H_SAMPLE_NS", OFFSET(Header, sample_ns), "PLACE_WORDS", (Py_ssize_t)(sizeof(PlaceRec) / 8),
        "STACK_WORDS", (Py_ssize_t)(sizeof(StackRec) / 8), "SAMPLE_WORDS", (Py_ssize_t)(sizeof(SampleRec) / 8),
        "NODE_WORDS", (Py_ssize_t)(sizeof(NodeRec) / 8), "TRACK_WORDS", (Py_ssize_t)(sizeof(TrackRec) / 8));
}

#ifdef HOTLOOP_CHECKS
/* fail_nth(n): the nth call that can fail does; answers how many there were since the last time. */
static PyObject *py_fail_nth(PyObject *module, PyObject *args) {
    (void)module;
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
    {"adopt", py_adopt, METH_VARARGS, NULL},
    {"release", py_release, METH_NOARGS, NULL},
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
    {"set_revive", py_set_revive, METH_O, NULL},
    {"set_on_step", py_set_on_step, METH_O, NULL},
    {"set_callbacks", (PyCFunction)(void (*)(void))py_set_callbacks, METH_VARARGS | METH_KEYWORDS, NULL},
    {"set_time", py_set_time, METH_VARARGS, NULL},
    {"use_track", py_use_track, METH_VARARGS, NULL},
    {"end_track", py_end_track, METH_NOARGS, NULL},
    {"layout", py_layout, METH_NOARGS, NULL},
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
    static const struct { const char *name; uint32_t kind; } reserved[Z_RESERVED] = {
        [Z_ROOT] = {"(root)", KIND_ROOT},         [Z_PROFILER] = {"(profiler)", KIND_PROFILER},
        [Z_HANDOFF] = {"(handed over)", KIND_HANDOFF}, [Z_OVERFLOW] = {"(more labels)", KIND_OVERFLOW},
        [Z_IDLE] = {"(waiting: idle worker)", KIND_WAIT}, [Z_SLEEP] = {"(waiting: sleep)", KIND_WAIT},
        [Z_LOCK] = {"(waiting: lock)", KIND_WAIT},     [Z_SOCKET] = {"(waiting: socket)", KIND_WAIT},
        [Z_SELECT] = {"(waiting: select)", KIND_WAIT}, [Z_QUEUE] = {"(waiting: queue)", KIND_WAIT},
        [Z_GC] = {"(gc pause)", KIND_WAIT},           [Z_WRITE] = {"log/write", KIND_USER},
    };
    if (page_start()) return PyErr_NoMemory(), -1;
    PyTypeObject *types[] = {&Finder_Type, &Enter_Type, &Exit_Type, &Zone_Type, &Profiled_Type, &Token_Type, &Hooked_Type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyType_Ready(types[i])) return -1;
    if (add_finder("__enter__", 0) || add_finder("__exit__", 1)) return -1;
    PyType_Modified(&Zone_Type);
    zones_by_name = PyDict_New();
    no_wait = PyTuple_Pack(1, Py_False);
    g.eval_steps = PyUnicode_InternFromString("eval_env_steps");
    said_names[0] = PyUnicode_InternFromString("~said_env_steps");
    said_names[1] = PyUnicode_InternFromString("~said_updates");
    if (!zones_by_name || !no_wait || !g.eval_steps) return -1;
    for (int i = 0; i < Z_RESERVED; i++) {
        PyObject *name = PyUnicode_FromString(reserved[i].name);
        reserved_zones[i] = name ? zone_new(name, reserved[i].kind) : NULL;
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
