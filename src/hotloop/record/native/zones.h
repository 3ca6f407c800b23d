/* Zones: what `profile(name)` answers, a context manager and a decorator.
 *
 * What lives here: the type, its two halves that `with` calls, the table of names, and where a span is opened.
 * Invariant: a name has one zone as long as anybody holds it. */
#ifndef HL_ZONES_H
#define HL_ZONES_H

#include "hot.h"

static PyTypeObject Zone_Type, Enter_Type, Exit_Type, Profiled_Type;
static PyObject *zones_by_name;

/* The last zone for each string object seen: names are literals, so the pointer is the key nearly always. */
#define CACHE 1024
static struct { PyObject *name; Zone *zone; } cache[CACHE];
FLATTEN size_t cache_slot(PyObject *name) { return ((uintptr_t)name >> 4 ^ (uintptr_t)name >> 14) & (CACHE - 1); }

static PyObject *enter_call(PyObject *half, PyObject *const *a, size_t n, PyObject *k) {
    Zone *zone = ((Half *)half)->zone;
    if (page->gen || g.want) span_enter(zone);
    return Py_NewRef((PyObject *)zone);
}

static PyObject *exit_call(PyObject *half, PyObject *const *a, size_t n, PyObject *k) {
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
    int full = tr.zone_count == tr.zone_room && grow((void **)&tr.zones, &tr.zone_room, sizeof *tr.zones);
    if (!zone->enter || !zone->exit || full) {
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

#endif
