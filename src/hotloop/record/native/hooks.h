/* Hooked functions: calls of libraries and of the script's own classes that mean something in a training loop.
 *
 * What lives here: one callable that stands in for a function and knows its role; class creation and garbage collection as
 * events. Who may touch it: `integrations`, which decide what is hooked. Invariant: the function is called exactly as it was
 * called, its result and exceptions pass unchanged, and whatever goes wrong on our side is swallowed and counted. */
#ifndef HL_HOOKS_H
#define HL_HOOKS_H

#include "environments.h"

/* ---- callables that stand in for a function ---- */

#define STAND_IN_HEAD    \
    PyObject_HEAD        \
    vectorcallfunc call; \
    PyObject *function, *dict, *weak, *after, *layers; /* after: called with results; layers: class -> zone */
typedef struct { STAND_IN_HEAD } StandIn;

static int stand_in_traverse(StandIn *stand_in, visitproc visit, void *arg) {
    Py_VISIT(stand_in->function);
    Py_VISIT(stand_in->dict);
    Py_VISIT(stand_in->after);
    Py_VISIT(stand_in->layers);
    return 0;
}

static int stand_in_clear(StandIn *stand_in) {
    Py_CLEAR(stand_in->function);
    Py_CLEAR(stand_in->dict);
    Py_CLEAR(stand_in->after);
    Py_CLEAR(stand_in->layers);
    return 0;
}

static void stand_in_dealloc(StandIn *stand_in) {
    PyObject_GC_UnTrack(stand_in);
    if (stand_in->weak) PyObject_ClearWeakRefs((PyObject *)stand_in);
    stand_in_clear(stand_in);
    PyObject_GC_Del(stand_in);
}

static PyObject *stand_in_get(PyObject *stand_in, PyObject *object, PyObject *type) {
    return object && object != Py_None ? PyMethod_New(stand_in, object) : Py_NewRef(stand_in);
}

static StandIn *stand_in_new(PyTypeObject *type, vectorcallfunc call, PyObject *function) {
    StandIn *made = PyObject_GC_New(StandIn, type);
    if (!made) return NULL;
    memset((char *)made + sizeof(PyObject), 0, (size_t)type->tp_basicsize - sizeof(PyObject));
    made->call = call;
    made->function = Py_NewRef(function);
    return made;
}

#define STAND_IN_SLOTS                                                                                                         \
    .tp_vectorcall_offset = offsetof(StandIn, call), .tp_call = PyVectorcall_Call,                                             \
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,           \
    .tp_traverse = (traverseproc)stand_in_traverse, .tp_clear = (inquiry)stand_in_clear, .tp_descr_get = stand_in_get,         \
    .tp_weaklistoffset = offsetof(StandIn, weak), .tp_dictoffset = offsetof(StandIn, dict)

static PyTypeObject Hooked_Type;

typedef struct {
    STAND_IN_HEAD
    Zone *zones[DECIDING];        /* [0]: the usual one; the others by phase, where they differ */
    uint32_t role, event, inside, within, counts, every, calls;
    int transparent;              /* holds an event of its own: no span, only what is in it */
    int called;                   /* of what may be an evaluation: was it yet, */
    uint64_t trained;             /* and with how many env steps outside */
    PyTypeObject *last_type;
    Zone *last_layer;
} Hooked;

FLATTEN Zone *zone_in(Hooked *hooked, uint32_t phase) {
    return phase && hooked->zones[phase] ? hooked->zones[phase] : hooked->zones[0];
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
    if (hooked->after && ++hooked->calls % hooked->every < LOOK_BURST) call_after(hooked, args, nargs, result, phase)

/* An env step of work that was handed over: for those who wait for it, this is the event. */
static void tell_waiting(Track *track, uint32_t event) {
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *other = g.tracks[i];
        if (other == track || other->retired || other->gen != g.gen || other->depth != 1) continue;
        if (other->top->label->rec->kind != KIND_WAIT || other->within_phase) continue;
        if (other->pending_count || other->root->rec->self_ns > other->gap_mark) resolve(other, event);
    }
}

/* What a call of an environment did, once it is known not to have ended the recording. */
static void count_done(Hooked *hooked, Track *track) {
    if (hooked->counts != COUNT_UPDATE) return;
    g.learned = g.learns = 1;
    work_done(track->last);
}

static Track *track_by_id(uint32_t id_plus_one) {
    for (uint32_t i = 0; id_plus_one && i < g.track_count; i++)
        if (g.tracks[i]->id + 1 == id_plus_one) return g.tracks[i];
    return NULL;
}

/* The outermost call of an environment on this thread that is part of another's call on another one: its layers hang below
 * that one, nothing is counted but the steps of its own row. Without a `holder` an executor handed it over. */
static PyObject *call_inside(Hooked *hooked, Track *track, Env *env, Holder *holder, PyObject *const *args, size_t nargs,
                             PyObject *keywords) {
    Zone *layer = layer_of(hooked, args, nargs);
    uint64_t gen = track->gen, resets = track->resets;
    uint32_t before = track->inside, phase = track->within_phase, depth = track->depth;
    Track *outer = holder ? holder->track : track_by_id(track->handed_by);
    if (holder) {
        Node *from = outer->top;
        while (from->label->rec->kind == KIND_WAIT && from->parent) from = from->parent;
        adopt(sh.head->shard_id, from->path);
        track->inside |= hooked->inside;
        if (outer->within_phase == PHASE_EVAL) track->within_phase = PHASE_EVAL;
    }
    int handed = track->depth > depth;
    PyObject *open = track->env;
    track->env = args[0];
    track->env_calls++;
    EnvRec *rec = hooked->counts == COUNT_STEP && track->within_phase != PHASE_EVAL ? env_record(env) : NULL;
    if (layer) span_enter(layer);
    uint64_t began = track->last;
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (layer) span_exit(layer);
    uint64_t ended = track->last;
    if (handed) span_exit(reserved_zones[Z_HANDOFF]);
    track->env = open;
    int goes_on = result && track->gen == gen && gen == page->gen;
    if (goes_on && hooked->counts == COUNT_RESET) {
        count_reset(track, env, resets);
        if (outer) outer->resets++; /* it holds this one */
    } else if (goes_on) {
        if (rec) count_env(rec, track, layer, ended - began);
        if (outer && outer->listens) hear_ends(outer, gen, outer->heard, result);
        if (holder && page->gen == gen) count_step(track, gen, env, args[0], result, 1);
        if (holder && page->gen == gen) watch_step(env, holder, gen);
    }
    track->inside = before;
    track->within_phase = phase;
    return result;
}

/* Within an environment, on the same thread. */
static PyObject *call_layer(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    Zone *layer = layer_of(hooked, args, nargs);
    uint64_t gen = track->gen, resets = track->resets, heard = track->heard;
    if (layer && track->depth && track->frames[track->depth - 1].zone == layer) layer = NULL; /* super().step() */
    if (layer) span_enter(layer);
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (layer) span_exit(layer);
    if (UNLIKELY(track->listens) && hooked->counts == COUNT_STEP && result && track->gen == gen) hear_ends(track, gen, heard, result);
    if (hooked->counts == COUNT_RESET && result && track->gen == gen && gen == page->gen) count_reset(track, NULL, resets);
    return result;
}

static PyObject *call_env(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    uint64_t gen = track->gen;
    int steps = hooked->counts == COUNT_STEP, ends = hooked->counts == COUNT_ENDS, has = PyVectorcall_NARGS(nargs) > 0, held = HELD_BY_NONE;
    Holder holder;
    if (track->inside & hooked->within) {
        Env *env = UNLIKELY(!track->env) && has && hooked->counts ? env_of(args[0]) : NULL;
        return env && page->gen == gen ? call_inside(hooked, track, env, NULL, args, nargs, keywords)
                                       : call_layer(hooked, track, args, nargs, keywords);
    }
    Zone *layer = layer_of(hooked, args, nargs);
    Env *env = has && hooked->counts ? env_of(args[0]) : NULL;
    if (UNLIKELY(env && env->nest != NEST_OUTERMOST)) {
        held = find_holder(track, env, args[0], steps || ends, &holder);
        if (page->gen != gen || track->gen != gen) return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
        if (held == HELD_INSIDE) return call_inside(hooked, track, env, &holder, args, nargs, keywords);
    }
    event_begins(track, hooked->event);
    if (UNLIKELY(!g.in_loop) && hooked->counts != COUNT_RESET) begin_loop(track);
    if (UNLIKELY(track->depth && track->frames[0].zone == reserved_zones[Z_HANDOFF])) tell_waiting(track, hooked->event);
    if (track->within_phase != PHASE_EVAL && !held) maybe_iterate(track);
    uint32_t before = track->inside;
    Zone *zone = zone_in(hooked, track->within_phase);
    track->inside |= hooked->inside;
    span_enter(zone);
    uint64_t began = track->last, resets = track->resets;
    PyObject *open = track->env;
    track->env = has ? args[0] : Py_None;
    track->env_calls++;
    int listened = track->listens;
    uint64_t heard = track->heard;
    track->listens = env && (ends || (steps && env->ends != ENDS_TOLD));
    track->heard = 0;
    EnvRec *rec = env && steps && track->within_phase != PHASE_EVAL && page->gen == gen ? env_record(env) : NULL;
    if (layer) span_enter(layer);
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (layer) span_exit(layer);
    span_exit(zone);
    track->inside = before;
    track->env = open;
    if (result && track->gen == gen && gen == page->gen) {
        if (rec) count_env(rec, track, layer, track->last - began);
        if (steps) count_step(track, gen, env, has ? args[0] : NULL, result, held != HELD_BY_NONE);
        else if (hooked->counts == COUNT_RESET) count_reset(track, env, resets);
        else if (ends && !held) count_ends(track);
        if (UNLIKELY(held) && page->gen == gen) watch_step(env, &holder, gen);
        AFTER(track->phase);
    }
    track->listens = listened;
    track->heard = heard;
    return result;
}

/* Looks at the result: 1 it is an environment's, -1 it never will be, 0 not known yet. */
COLD static long judge(Hooked *hooked, PyObject *result) {
    if (!hooked->after) return -1;
    settle(self, now());
    PyObject *answer = PyObject_CallOneArg(hooked->after, result);
    long verdict = answer && PyLong_Check(answer) ? PyLong_AsLong(answer) : -1;
    if (!answer) swallow_error();
    Py_XDECREF(answer);
    if (self->gen == page->gen) charge(self, now());
    return verdict;
}

static PyObject *call_aside(PyObject *object, PyObject *const *args, size_t nargs, PyObject *keywords) {
    return PyObject_Vectorcall(((Hooked *)object)->function, args, nargs, keywords);
}

/* Perhaps an environment's step. The call that shows it to be one counts, unless steps within it did. */
COLD static PyObject *call_trial(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    uint64_t gen = track->gen, counted = g.trial_counted;
    uint32_t before = track->inside;
    track->inside |= IN_TRIAL;
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    track->inside = before;
    if (!result || track->gen != gen || gen != page->gen || hooked->role != ROLE_TRIAL) return result;
    long verdict = judge(hooked, result);
    if (verdict < 0) hooked->call = call_aside;
    if (verdict <= 0 || track->gen != gen || gen != page->gen) return result;
    hooked->role = ROLE_ENV;
    Py_CLEAR(hooked->after);
    if (before & hooked->within || g.trial_counted != counted || !PyVectorcall_NARGS(nargs)) return result;
    event_begins(track, hooked->event);
    if (!g.in_loop) begin_loop(track);
    Env *env = gen == page->gen && track->gen == gen ? env_of(args[0]) : NULL;
    if (env && gen == page->gen) count_step(track, gen, env, args[0], result, 0);
    return result;
}

static PyObject *call_model(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    uint32_t before = track->inside, within = track->within_phase, row = g.row;
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
    /* over the end of a row it stays as guessed: part of its time is in a row already */
    if (site && !hooked->transparent && g.row == row && track->pending_count < PENDING) {
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

/* Is what may be an evaluation, by its name, all that has stepped environments since it was first called? */
COLD static int collects(Hooked *hooked) {
    if (hooked->counts == COUNT_EVAL_STEPS && !g.in_loop) hooked->counts = COUNT_EVAL_FIRST;
    if (hooked->counts != COUNT_EVAL_FIRST) return 0;
    if (!hooked->called) hooked->called = 1, hooked->trained = g.trained;
    return hooked->trained == g.trained;
}

static PyObject *call_span(Hooked *hooked, Track *track, PyObject *const *args, size_t nargs, PyObject *keywords) {
    if (UNLIKELY(hooked->counts >= COUNT_EVAL_STEPS) && collects(hooked)) {
        uint32_t before = track->inside;
        track->inside |= IN_TEST;
        PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
        track->inside = before;
        return result;
    }
    uint64_t gen = track->gen, evaluated = g.eval_counted;
    if (hooked->event) event_begins(track, hooked->event);
    if (UNLIKELY(!g.in_loop) && hooked->inside & IN_LEARN) begin_loop(track);
    uint32_t before = track->inside, phase = track->within_phase;
    Zone *zone = zone_in(hooked, phase);
    track->inside |= hooked->inside;
    if (hooked->role == ROLE_PHASE && phase != PHASE_EVAL) track->within_phase = hooked->event;
    span_enter(zone);
    PyObject *result = PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    span_exit(zone);
    track->inside = before;
    track->within_phase = phase;
    if (track->gen != gen || gen != page->gen) return result;
    if (hooked->role == ROLE_PHASE) resolve(track, phase ? phase : hooked->event);
    if (UNLIKELY(hooked->counts >= COUNT_EVAL_STEPS) && result && g.eval_counted == evaluated) hooked->call = call_aside;
    if (result) {
        count_done(hooked, track);
        AFTER(track->phase);
    }
    return result;
}

static PyObject *hooked_call(PyObject *object, PyObject *const *args, size_t nargs, PyObject *keywords) {
    Hooked *hooked = (Hooked *)object;
    Track *track = self;
    if ((!page->gen && !g.want) || (UNLIKELY(track->gen != page->gen) && !(track = wake())))
        return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (LIKELY(hooked->role == ROLE_ENV)) return call_env(hooked, track, args, nargs, keywords);
    if (hooked->role == ROLE_TRIAL) return call_trial(hooked, track, args, nargs, keywords);
    if (track->inside & hooked->within || hooked->transparent) return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (hooked->role == ROLE_LISTS && !(PyVectorcall_NARGS(nargs) && (PyList_Check(args[0]) || PyTuple_Check(args[0]))))
        return PyObject_Vectorcall(hooked->function, args, nargs, keywords);
    if (hooked->role == ROLE_MODEL || hooked->role == ROLE_LISTS) return call_model(hooked, track, args, nargs, keywords);
    return call_span(hooked, track, args, nargs, keywords);
}

/* ---- the type ---- */

/* hook(function, role, zones, event, inside, within, counts, after, every) */
static PyObject *py_hook(PyObject *module, PyObject *args) {
    PyObject *function, *zones, *after;
    unsigned role, event, inside, within, counts, every;
    if (!PyArg_ParseTuple(args, "OIO!IIIIOI", &function, &role, &PyTuple_Type, &zones, &event, &inside, &within, &counts, &after, &every))
        return NULL;
    if (event >= DECIDING || PyTuple_GET_SIZE(zones) != DECIDING || !Py_IS_TYPE(PyTuple_GET_ITEM(zones, 0), &Zone_Type)) {
        PyErr_SetString(PyExc_ValueError, "zones: one per phase, the first always");
        return NULL;
    }
    Hooked *hooked = (Hooked *)stand_in_new(&Hooked_Type, hooked_call, function);
    if (!hooked) return NULL;
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

static PyObject *revive; /* (function, role) -> the function, hooked again in another process */

/* Is `name` one of the folders of a path, or the module it leads to? */
static int path_has(const char *path, const char *name) {
    size_t length = strlen(name);
    for (const char *part = path; part; part = (part = strpbrk(part, "/\\")) ? part + 1 : NULL) {
        const char *end = part + strcspn(part, "/\\");
        size_t size = (size_t)(end - part);
        if (!*end && size > 3 && !memcmp(end - 3, ".py", 3)) size -= 3;
        if (size == length && !memcmp(part, name, length)) return 1;
    }
    return 0;
}

/* Is it pickled by value? cloudpickle does that to classes of the main module, and a name would then lead to another class. */
static int pickled_by_value(void) {
    PyFrameObject *frame = PyEval_GetFrame();
    PyCodeObject *code = frame ? PyFrame_GetCode(frame) : NULL;
    const char *file = code ? PyUnicode_AsUTF8(code->co_filename) : NULL;
    int found = file && (path_has(file, "cloudpickle") || path_has(file, "dill"));
    Py_XDECREF(code);
    PyErr_Clear();
    return found;
}

/* Pickled by name, as functions are; by value where classes are. */
static PyObject *hooked_reduce(PyObject *object, PyObject *unused) {
    Hooked *hooked = (Hooked *)object;
    PyObject *role = hooked->dict ? PyDict_GetItemString(hooked->dict, "role") : NULL;
    if (revive && role && pickled_by_value()) return Py_BuildValue("(O(OO))", revive, hooked->function, role);
    return PyObject_GetAttrString(object, "__qualname__");
}

/* What is not ours is the function's: its name, its code, its signature. */
static PyObject *hooked_getattr(PyObject *object, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Hooked *)object)->function, name);
}

static PyObject *hooked_doc(PyObject *object, void *unused) {
    return PyObject_GetAttrString(((Hooked *)object)->function, "__doc__");
}

static int hooked_set_doc(PyObject *object, PyObject *text, void *unused) {
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
    .tp_dealloc = (destructor)stand_in_dealloc,
    .tp_repr = (reprfunc)hooked_repr,
    .tp_getattro = hooked_getattr,
    .tp_methods = hooked_methods,
    .tp_members = hooked_members,
    .tp_getset = hooked_getset,
    STAND_IN_SLOTS,
};

/* ---- classes as they are made ---- */

static PyObject *build_class, *class_names, *on_class;

/* Stands in for builtins.__build_class__. Being no Python function it adds no frame, so packages that count frames see none. */
static PyObject *build_class_hook(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *keywords) {
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
    if (nargs < 1 || self->gen != page->gen || !PyUnicode_Check(args[0]) || PyUnicode_GET_LENGTH(args[0]) < 4) Py_RETURN_NONE;
    if (PyUnicode_READ_CHAR(args[0], 2) == 'a') span_enter(reserved_zones[Z_GC]); /* start, stop */
    else span_exit(reserved_zones[Z_GC]);
    Py_RETURN_NONE;
}

/* expect_updates(): something is going to learn, so episodes close no iterations. */
static PyObject *py_expect_updates(PyObject *module, PyObject *unused) {
    g.learns = g.expects = 1; /* also of a recording that has yet to begin */
    Py_RETURN_NONE;
}

/* within(phase): this thread works for one phase until told otherwise (0). Answers what it was. */
static PyObject *py_within(PyObject *module, PyObject *args) {
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
