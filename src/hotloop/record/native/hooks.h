/* Hooked functions: calls of libraries and of the script's own classes that mean something in a training loop.
 *
 * What lives here: one callable that stands in for a function and knows its role; class creation and garbage collection as
 * events. Who may touch it: `integrations`, which decide what is hooked. Invariant: the function is called exactly as it was
 * called, its result and exceptions pass unchanged, and whatever goes wrong on our side is swallowed and counted. */
#ifndef HL_HOOKS_H
#define HL_HOOKS_H

#include "phases.h"

static PyTypeObject Hooked_Type;

/* SPAN: a span. ENV: an environment's method; the outermost call is the event, calls within it are its layers, by class.
 * MODEL: a network; only the outermost call is a span, and what comes next decides its phase. LISTS: as MODEL, but only
 * when the first argument is a list. PHASE: everything within belongs to one phase. */
enum { ROLE_SPAN, ROLE_ENV, ROLE_MODEL, ROLE_LISTS, ROLE_PHASE };
/* What is open on a track; a hook is passed by while one of its `within` is. */
enum { IN_ENV = 1, IN_MODEL = 2, IN_LEARN = 4, IN_LOG = 8, IN_SAVE = 16, IN_PHASE = 32, IN_DATA = 64, IN_RENDER = 128 };
enum { COUNT_NOTHING, COUNT_STEP, COUNT_RESET, COUNT_UPDATE };

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function, *dict, *weak, *after;
    Zone *zones[DECIDING];        /* [0]: the usual one; the others by phase, where they differ */
    uint32_t role, event, inside, within, counts, every, calls;
    int transparent;              /* holds an event of its own: no span, only what is in it */
    PyObject *layers;             /* class -> zone */
    PyTypeObject *last_type;
    Zone *last_layer;
} Hooked;

FLATTEN Zone *zone_in(Hooked *hooked, uint32_t phase) {
    return phase && hooked->zones[phase] ? hooked->zones[phase] : hooked->zones[0];
}

/* ---- what a step did ---- */

/* How many of them: the leading dimension of an array or tensor, else one. */
static int64_t length_of(PyObject *value) {
    if (PyFloat_Check(value) || PyLong_Check(value) || PyDict_Check(value) || value == Py_None) return 1;
    PyTypeObject *type = Py_TYPE(value);
    int has = (type->tp_as_sequence && type->tp_as_sequence->sq_length) || (type->tp_as_mapping && type->tp_as_mapping->mp_length);
    Py_ssize_t n = has ? PyObject_Size(value) : 1;
    if (n < 0) PyErr_Clear();
    return n < 1 ? 1 : n;
}

/* Adds a flag, or an array of them, to `done`; answers 0 when they cannot be read without touching a device. */
static int read_flags(PyObject *value, char *done, Py_ssize_t n) {
    if (PyBool_Check(value)) {
        done[0] |= value == Py_True;
        return 1;
    }
    if (PyList_Check(value)) {
        for (Py_ssize_t i = 0; i < n && i < PyList_GET_SIZE(value); i++) done[i] |= PyList_GET_ITEM(value, i) == Py_True;
        return 1;
    }
    Py_buffer view;
    if (!PyObject_CheckBuffer(value)) return 0;
    if (PyObject_GetBuffer(value, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) {
        PyErr_Clear();
        return 0;
    }
    int ok = view.itemsize == 1;
    for (Py_ssize_t i = 0; ok && i < n && i < view.len; i++) done[i] |= ((char *)view.buf)[i] != 0;
    PyBuffer_Release(&view);
    return ok;
}

/* Looking at a result may run its own code, which may end the recording: first look, then write. */
static void count_step(Track *track, PyObject *result) {
    Py_ssize_t size = PyTuple_Check(result) ? PyTuple_GET_SIZE(result) : 0;
    int64_t n = size >= 2 ? length_of(PyTuple_GET_ITEM(result, 1)) : 1;
    if (track->within_phase == PHASE_EVAL) {
        do_count(g.eval_steps, n, 1);
        return;
    }
    char few[64] = {0}, *done = n <= 64 ? few : calloc((size_t)n, 1);
    int known = done && size >= 3 ? read_flags(PyTuple_GET_ITEM(result, 2), done, n) : 0;
    if (done && size >= 5) known |= read_flags(PyTuple_GET_ITEM(result, 3), done, n);
    uint64_t episodes = 0;
    for (int64_t i = 0; known && i < n; i++) episodes += done[i] != 0;
    if (done != few) free(done);
    if (track->gen != page->gen) return;
    sh.head->counters[0].total += (uint64_t)n;
    g.hook_counts |= 1;
    sh.head->counters[3].total += episodes;
    work_done(track->last);
    if (episodes) g.episode_ended = 1;
}

static void count_done(Hooked *hooked, Track *track, PyObject *result) {
    switch (hooked->counts) {
    case COUNT_STEP: count_step(track, result); break;
    case COUNT_RESET: sh.head->counters[4].total++; break;
    case COUNT_UPDATE: g.learned = g.learns = 1; work_done(track->last); break;
    }
}

/* ---- roles ---- */

/* An event begins. A model's method that holds events is no phase: from now on it is looked through. */
static void event_begins(Track *track, uint32_t event) {
    if (UNLIKELY(track->inside & IN_MODEL) && track->model) {
        ((Hooked *)track->model)->transparent = 1;
        track->inside &= ~(uint32_t)IN_MODEL;
    }
    resolve(track, track->within_phase ? track->within_phase : event);
}

/* Where a label comes from: the function, not who calls it. */
COLD static void site_of_function(Zone *zone, PyObject *function) {
    if (zone->site) return;
    PyObject *code = PyObject_GetAttrString(function, "__code__");
    if (code && PyCode_Check(code)) {
        PyCodeObject *c = (PyCodeObject *)code;
        zone->site = PyUnicode_FromFormat("%U:%d", c->co_filename, c->co_firstlineno);
    }
    Py_XDECREF(code);
    PyErr_Clear();
}

COLD static Zone *layer_new(Hooked *hooked, PyTypeObject *type) {
    Zone *zone = NULL;
    PyObject *known = PyDict_GetItemWithError(hooked->layers, (PyObject *)type);
    if (known) zone = (Zone *)known;
    else {
        PyObject *method = PyObject_GetAttrString(hooked->function, "__name__");
        const char *dot = strrchr(type->tp_name, '.');
        PyObject *name = method ? PyUnicode_FromFormat("%s.%S", dot ? dot + 1 : type->tp_name, method) : NULL;
        zone = name ? zone_of(name) : NULL;
        if (zone) {
            zone->owns = 1;
            zone->marks = 0;
            site_of_function(zone, hooked->function);
        }
        if (zone && PyDict_SetItem(hooked->layers, (PyObject *)type, (PyObject *)zone)) zone = NULL;
        Py_XDECREF(name);
        Py_XDECREF(method);
        Py_XDECREF(zone); /* the dict keeps it */
    }
    PyErr_Clear();
    hooked->last_type = type;
    hooked->last_layer = zone;
    return zone;
}

FLATTEN Zone *layer_of(Hooked *hooked, PyObject *const *args, size_t nargs) {
    if (!PyVectorcall_NARGS(nargs)) return NULL;
    PyTypeObject *type = Py_TYPE(args[0]);
    return LIKELY(type == hooked->last_type) ? hooked->last_layer : layer_new(hooked, type);
}

/* After every so many calls, the Python part: it gets the arguments, the result and the phase. Our time. */
COLD static void call_after(Hooked *hooked, PyObject *const *args, size_t nargs, PyObject *result, uint32_t phase) {
    Py_ssize_t n = PyVectorcall_NARGS(nargs);
    if (self->gen != page->gen) return;
    PyObject *tuple = PyTuple_New(n), *done = NULL, *code = PyLong_FromUnsignedLong(phase);
    settle(self, now());
    for (Py_ssize_t i = 0; tuple && i < n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(args[i]));
    if (tuple && code) done = PyObject_CallFunctionObjArgs(hooked->after, tuple, result, code, NULL);
    if (!done) swallow_error();
    Py_XDECREF(done);
    Py_XDECREF(tuple);
    Py_XDECREF(code);
    if (self->gen == page->gen) charge(self, now());
}
#define AFTER(phase) \
    if (hooked->after && ++hooked->calls % hooked->every == 0) call_after(hooked, args, nargs, result, phase)

/* An env step of work that was handed over: for those who wait for it, this is the event. */
static void tell_waiting(Track *track, uint32_t event) {
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *other = g.tracks[i];
        if (other == track || other->retired || other->gen != g.gen || other->depth != 1) continue;
        if (other->top->label->rec->kind != KIND_WAIT || other->within_phase) continue;
        if (other->pending_count || other->root->rec->self_ns > other->gap_mark) resolve(other, event);
    }
}

/* Steps by environment, so that one slow one among many can be named. The address tells them apart. */
static PyObject *env_objects[ENV_SLOTS]; /* in the order they were first stepped */
static uint64_t envs_of_gen;
static EnvRec *env_record(PyObject *env) {
    if (envs_of_gen != g.gen) {
        memset(env_objects, 0, sizeof env_objects);
        envs_of_gen = g.gen;
    }
    for (uint32_t i = 0; i < ENV_SLOTS; i++) {
        if (env_objects[i] && env_objects[i] != env) continue;
        env_objects[i] = env;
        return &sh.head->envs[i];
    }
    return NULL;
}

static void count_env(EnvRec *rec, Track *track, Zone *layer, uint64_t ns) {
    rec->calls++;
    rec->ns += ns;
    rec->track_plus_one = track->id + 1;
    rec->label_plus_one = layer && layer->label ? layer->label->id + 1 : 0;
}

static PyObject *call_env(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    Zone *layer = layer_of(hooked, args, nargs);
    uint64_t gen = track->gen;
    if (track->inside & hooked->within) { /* a layer of an environment */
        if (!layer || (track->depth && track->frames[track->depth - 1].zone == layer)) /* super().step() */
            return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
        span_enter(layer);
        PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
        span_exit(layer);
        return result;
    }
    event_begins(track, hooked->event);
    if (UNLIKELY(!g.in_loop) && hooked->counts != COUNT_RESET) begin_loop(track);
    if (UNLIKELY(track->depth && track->frames[0].zone == reserved_zones[Z_HANDOFF])) tell_waiting(track, hooked->event);
    if (track->within_phase != PHASE_EVAL) maybe_iterate(track);
    uint32_t before = track->inside;
    Zone *zone = zone_in(hooked, track->within_phase);
    track->inside |= hooked->inside;
    span_enter(zone);
    uint64_t began = track->last;
    int collects = hooked->counts == COUNT_STEP && track->within_phase != PHASE_EVAL && PyVectorcall_NARGS(nargs) && page->gen;
    EnvRec *env = collects ? env_record(args[0]) : NULL; /* now: they are numbered as they begin */
    if (layer) span_enter(layer);
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (layer) span_exit(layer);
    span_exit(zone);
    track->inside = before;
    if (result && track->gen == gen && gen == page->gen) {
        if (env) count_env(env, track, layer, track->last - began);
        count_done(hooked, track, result);
        AFTER(track->phase);
    }
    return result;
}

static PyObject *call_model(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    uint32_t before = track->inside, within = track->within_phase, iteration = g.iteration;
    uint64_t gen = track->gen;
    Site *site = within ? NULL : site_here();
    uint32_t phase = within ? within : site->phase;
    PyObject *model = track->model;
    if (hooked->inside & IN_MODEL) track->model = (PyObject *)hooked;
    track->inside |= hooked->inside;
    Zone *zone = hooked->zones[phase ? phase : PHASE_COLLECT];
    if (!zone) zone = hooked->zones[0];
    span_enter(zone);
    Node *node = track->gen == page->gen ? track->top : NULL;
    uint64_t own = node ? node->rec->self_ns : 0, total = node ? node->rec->total_ns : 0;
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    span_exit(zone);
    track->inside = before;
    track->model = model;
    if (track->gen != gen || gen != page->gen || !node) return result;
    /* over the end of an iteration it stays as guessed: part of its time is in a row already */
    if (site && !hooked->transparent && g.iteration == iteration && track->pending_count < PENDING) {
        NodeRec *rec = node->rec;
        Pending *span = &track->pending[track->pending_count++];
        *span = (Pending){.node = node, .site = site, .phase = phase ? phase : PHASE_COLLECT, .own = rec->self_ns - own,
                          .total = rec->total_ns - total};
        memcpy(span->zones, hooked->zones, sizeof span->zones);
    }
    if (result) {
        AFTER(phase);
    }
    return result;
}

static PyObject *call_span(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    uint64_t gen = track->gen;
    if (hooked->event) event_begins(track, hooked->event);
    if (UNLIKELY(!g.in_loop) && hooked->inside & IN_LEARN) begin_loop(track);
    uint32_t before = track->inside, phase = track->within_phase;
    Zone *zone = zone_in(hooked, phase);
    track->inside |= hooked->inside;
    if (hooked->role == ROLE_PHASE && phase != PHASE_EVAL) track->within_phase = hooked->event;
    span_enter(zone);
    if (zone->kind == KIND_WAIT && track->gen == page->gen) note_wait(track);
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    span_exit(zone);
    track->inside = before;
    track->within_phase = phase;
    if (track->gen != gen || gen != page->gen) return result;
    if (hooked->role == ROLE_PHASE) resolve(track, phase ? phase : hooked->event);
    if (result) {
        count_done(hooked, track, result);
        AFTER(track->phase);
    }
    return result;
}

static PyObject *hooked_call(PyObject *object, PyObject *const *args, size_t nargs, PyObject *keywords) {
    Hooked *hooked = (Hooked *)object;
    Track *track = self;
    if ((!page->gen && !g.want) || (UNLIKELY(track->gen != page->gen) && !(track = wake())))
        return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (hooked->role == ROLE_ENV) return call_env(hooked, track, args, nargs, keywords);
    if (track->inside & hooked->within || hooked->transparent) return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (hooked->role == ROLE_LISTS && !(PyVectorcall_NARGS(nargs) && (PyList_Check(args[0]) || PyTuple_Check(args[0]))))
        return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (hooked->role == ROLE_MODEL || hooked->role == ROLE_LISTS) return call_model(hooked, track, args, nargs, keywords);
    return call_span(hooked, track, args, nargs, keywords);
}

/* ---- the type ---- */

/* hook(function, role, zones, event, inside, within, counts, after, every) */
static PyObject *py_hook(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *function, *zones, *after;
    unsigned role, event, inside, within, counts, every;
    if (!PyArg_ParseTuple(args, "OIO!IIIIOI", &function, &role, &PyTuple_Type, &zones, &event, &inside, &within, &counts, &after, &every))
        return NULL;
    if (event >= DECIDING || PyTuple_GET_SIZE(zones) != DECIDING || !Py_IS_TYPE(PyTuple_GET_ITEM(zones, 0), &Zone_Type)) {
        PyErr_SetString(PyExc_ValueError, "zones: one per phase, the first always");
        return NULL;
    }
    Hooked *hooked = PyObject_GC_New(Hooked, &Hooked_Type);
    if (!hooked) return NULL;
    memset((char *)hooked + sizeof(PyObject), 0, sizeof *hooked - sizeof(PyObject));
    hooked->call = hooked_call;
    hooked->function = Py_NewRef(function);
    if (!(hooked->layers = PyDict_New())) {
        Py_DECREF(hooked);
        return NULL;
    }
    hooked->after = after == Py_None ? NULL : Py_NewRef(after);
    for (int i = 0; i < DECIDING; i++) {
        PyObject *zone = PyTuple_GET_ITEM(zones, i);
        hooked->zones[i] = Py_IS_TYPE(zone, &Zone_Type) ? (Zone *)Py_NewRef(zone) : NULL; /* for ever: calls may be pending */
    }
    hooked->role = role, hooked->event = event, hooked->inside = inside, hooked->within = within, hooked->counts = counts;
    hooked->every = every ? every : 1;
    site_of_function(hooked->zones[0], function);
    PyObject_GC_Track(hooked);
    return (PyObject *)hooked;
}

static int hooked_traverse(Hooked *hooked, visitproc visit, void *arg) {
    Py_VISIT(hooked->function);
    Py_VISIT(hooked->dict);
    Py_VISIT(hooked->after);
    Py_VISIT(hooked->layers);
    return 0;
}

static int hooked_clear(Hooked *hooked) {
    Py_CLEAR(hooked->function);
    Py_CLEAR(hooked->dict);
    Py_CLEAR(hooked->after);
    Py_CLEAR(hooked->layers);
    return 0;
}

static void hooked_dealloc(Hooked *hooked) {
    PyObject_GC_UnTrack(hooked);
    if (hooked->weak) PyObject_ClearWeakRefs((PyObject *)hooked);
    hooked_clear(hooked);
    PyObject_GC_Del(hooked);
}

static PyObject *hooked_get(PyObject *hooked, PyObject *object, PyObject *type) {
    (void)type;
    return object && object != Py_None ? PyMethod_New(hooked, object) : Py_NewRef(hooked);
}

static PyObject *revive; /* (function, role) -> the function, hooked again in another process */

/* Is it pickled by value? cloudpickle does that to classes of the main module, and a name would then lead to another class. */
static int pickled_by_value(void) {
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame ? PyFrame_GetCode(frame) : NULL;
    const char *file = code ? PyUnicode_AsUTF8(code->co_filename) : NULL;
    int found = file && (strstr(file, "cloudpickle") || strstr(file, "dill"));
    Py_XDECREF(code);
    PyErr_Clear();
    return found;
}

/* Pickled by name, as functions are; by value where classes are. */
static PyObject *hooked_reduce(PyObject *object, PyObject *unused) {
    (void)unused;
    Hooked *hooked = (Hooked *)object;
    PyObject *role = hooked->dict ? PyDict_GetItemString(hooked->dict, "role") : NULL;
    if (revive && role && pickled_by_value()) return Py_BuildValue("(O(OO))", revive, hooked->function, role);
    return PyObject_GetAttrString(object, "__qualname__");
}

static PyObject *py_set_revive(PyObject *module, PyObject *function) {
    (void)module;
    Py_XSETREF(revive, function == Py_None ? NULL : Py_NewRef(function));
    Py_RETURN_NONE;
}

/* What is not ours is the function's: its name, its code, its signature. */
static PyObject *hooked_getattr(PyObject *object, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Hooked *)object)->function, name);
}

static PyObject *hooked_doc(PyObject *object, void *unused) {
    (void)unused;
    return PyObject_GetAttrString(((Hooked *)object)->function, "__doc__");
}

static int hooked_set_doc(PyObject *object, PyObject *text, void *unused) {
    (void)unused;
    return PyObject_SetAttrString(((Hooked *)object)->function, "__doc__", text);
}

static PyObject *hooked_repr(Hooked *hooked) { return PyObject_Repr(hooked->function); }
static PyMethodDef hooked_methods[] = {{"__reduce__", hooked_reduce, METH_NOARGS, NULL}, {0}};
static PyMemberDef hooked_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Hooked, function), READONLY, "The function it stands in for."}, {0}};
static PyGetSetDef hooked_getset[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
                                      {"__doc__", hooked_doc, hooked_set_doc, NULL, NULL}, {0}};

static PyTypeObject Hooked_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone.Hooked",
    .tp_basicsize = sizeof(Hooked),
    .tp_dealloc = (destructor)hooked_dealloc,
    .tp_repr = (reprfunc)hooked_repr,
    .tp_vectorcall_offset = offsetof(Hooked, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = hooked_getattr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_traverse = (traverseproc)hooked_traverse,
    .tp_clear = (inquiry)hooked_clear,
    .tp_weaklistoffset = offsetof(Hooked, weak),
    .tp_methods = hooked_methods,
    .tp_members = hooked_members,
    .tp_getset = hooked_getset,
    .tp_descr_get = hooked_get,
    .tp_dictoffset = offsetof(Hooked, dict),
};

/* ---- classes as they are made ---- */

static PyObject *build_class, *class_names, *on_class;

/* Stands in for builtins.__build_class__. Being no Python function it adds no frame, so packages that count frames see none. */
static PyObject *build_class_hook(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
    (void)module;
    PyObject *made = PyObject_Vectorcall(build_class, args, (size_t)nargs, keywords);
    if (!made || !PyType_Check(made) || !on_class) return made;
    PyObject *dict = ((PyTypeObject *)made)->tp_dict;
    for (Py_ssize_t i = 0; dict && i < PyTuple_GET_SIZE(class_names); i++) {
        if (PyDict_Contains(dict, PyTuple_GET_ITEM(class_names, i)) != 1) continue;
        PyObject *done = PyObject_CallOneArg(on_class, made);
        if (!done) swallow_error();
        Py_XDECREF(done);
        break;
    }
    PyErr_Clear();
    return made;
}
static PyMethodDef build_class_def = {"__build_class__", (PyCFunction)(void (*)(void))build_class_hook, METH_FASTCALL | METH_KEYWORDS,
                                      "__build_class__(func, name, /, *bases, [metaclass], **kwds) -> class\n\nInternal helper function used by the class statement."};

/* watch_classes(names, callback): the callback gets every class made from now on that defines one of the names. None: stop. */
static PyObject *py_watch_classes(PyObject *module, PyObject *args) {
    PyObject *names, *callback, *builtins = PyEval_GetBuiltins();
    if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &names, &callback)) return NULL;
    if (!build_class) build_class = Py_XNewRef(PyDict_GetItemString(builtins, "__build_class__"));
    Py_XSETREF(class_names, Py_NewRef(names));
    Py_XSETREF(on_class, callback == Py_None ? NULL : Py_NewRef(callback));
    PyObject *stand_in = on_class ? PyCFunction_NewEx(&build_class_def, module, NULL) : Py_XNewRef(build_class);
    if (!stand_in || PyDict_SetItemString(builtins, "__build_class__", stand_in)) return NULL;
    Py_DECREF(stand_in);
    Py_RETURN_NONE;
}

/* For gc.callbacks: a collection is a pause of the span it falls into. */
static PyObject *py_gc_pause(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (nargs < 1 || self->gen != page->gen || !PyUnicode_Check(args[0]) || PyUnicode_GET_LENGTH(args[0]) < 4) Py_RETURN_NONE;
    if (PyUnicode_READ_CHAR(args[0], 2) == 'a') span_enter(reserved_zones[Z_GC]); /* start, stop */
    else span_exit(reserved_zones[Z_GC]);
    Py_RETURN_NONE;
}

/* expect_updates(): something is going to learn, so episodes close no iterations. */
static PyObject *py_expect_updates(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    g.learns = g.expects = 1; /* also of a recording that has yet to begin */
    Py_RETURN_NONE;
}

/* within(phase): this thread works for one phase until told otherwise (0). Answers what it was. */
static PyObject *py_within(PyObject *module, PyObject *args) {
    (void)module;
    unsigned phase;
    if (!PyArg_ParseTuple(args, "I", &phase)) return NULL;
    Track *track = self;
    if (track->gen != page->gen && !(track = wake())) return PyLong_FromLong(0);
    unsigned before = track->within_phase;
    track->within_phase = phase < DECIDING ? phase : 0;
    return PyLong_FromUnsignedLong(before);
}

/* zone(name, kind, phase, owns, marks): the zone of a hook. */
static PyObject *py_zone(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *name;
    unsigned kind, phase;
    int owns, marks = 0;
    if (!PyArg_ParseTuple(args, "UIIp|p", &name, &kind, &phase, &owns, &marks)) return NULL;
    Zone *zone = zone_of(name);
    if (!zone || zone->label || zone == reserved_zones[Z_OVERFLOW]) return (PyObject *)zone; /* a label in use keeps its meaning */
    zone->kind = kind;
    zone->phase = phase;
    zone->owns = owns != 0;
    zone->marks = marks != 0;
    return (PyObject *)zone;
}
#endif
