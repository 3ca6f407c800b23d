/* Known waits: sleep, locks, sockets, select, queues.
 *
 * What lives here: one stand-in per blocking C function of the standard library. The function's entry in its method
 * table is exchanged, so every reference to it is covered, however it was imported, and put back by unhook_waits().
 * Rejected: patching attributes, which misses `from time import sleep` and cannot reach locks at all.
 *
 * Invariant: a stand-in calls the original exactly as it was called; it adds a wait span only on a thread that already
 * records. A lock is first tried without blocking (unless the caller says how to take it), so a free one leaves no trace. */
#ifndef HL_WAITS_H
#define HL_WAITS_H

#include "hot.h"

typedef PyObject *(*CallPlain)(PyObject *, PyObject *);
typedef PyObject *(*CallKeywords)(PyObject *, PyObject *, PyObject *);
typedef PyObject *(*CallFast)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*CallFastKeywords)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
typedef PyObject *(*CallMethod)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);

static PyObject *empty_queue; /* what SimpleQueue.get() raises */

/* Begin a wait on a thread that records; answers what wait_end() needs. */
static Zone *wait_begin(int zone) {
    if (self->gen != page->gen) return NULL;
    span_enter(reserved_zones[zone]);
    return reserved_zones[zone];
}

/* Did it end by a time limit, without what was waited for? A lock that was not had, nothing to read, an exception that says so. */
static int has_expired(PyObject *result) {
    if (!result) return PyErr_ExceptionMatches(PyExc_TimeoutError) || (PyErr_Occurred() == empty_queue);
    if (PyTuple_CheckExact(result)) { /* of select(): three lists */
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(result); i++)
            if (!PyList_CheckExact(PyTuple_GET_ITEM(result, i)) || PyList_GET_SIZE(PyTuple_GET_ITEM(result, i))) return 0;
        return 1;
    }
    return result == Py_False || (PyList_CheckExact(result) && !PyList_GET_SIZE(result));
}

static PyObject *wait_end(Zone *zone, PyObject *result) {
    Track *track = self;
    if (!zone) return result;
    Frame *frame = track->gen == page->gen && track->depth ? &track->frames[track->depth - 1] : NULL;
    NodeRec *rec = frame && frame->zone == zone && has_expired(result) ? frame->node->rec : NULL;
    uint64_t start = rec ? frame->start : 0;
    span_exit(zone);
    if (rec) rec->expired_ns += track->last - start;
    return result;
}

#define WAITING(zone, call)              \
    Zone *waiting = wait_begin(zone);    \
    return wait_end(waiting, call)

/* The stand-ins for one target, one per calling convention; which one serves is known when it is hooked. */
typedef struct {
    PyMethodDef **def;
    PyCFunction *original;
    PyCFunction plain, keywords, fast, fastkw, method;
} Hook;

#define STAND_INS(name, zone)                                                                                     \
    static PyMethodDef *def_##name;                                                                               \
    static PyCFunction orig_##name;                                                                               \
    static PyObject *plain_##name(PyObject *s, PyObject *a) { WAITING(zone, ((CallPlain)orig_##name)(s, a)); }    \
    static PyObject *keywords_##name(PyObject *s, PyObject *a, PyObject *k) {                                     \
        WAITING(zone, ((CallKeywords)(void (*)(void))orig_##name)(s, a, k));                                      \
    }                                                                                                             \
    static PyObject *fast_##name(PyObject *s, PyObject *const *a, Py_ssize_t n) {                                 \
        WAITING(zone, ((CallFast)(void (*)(void))orig_##name)(s, a, n));                                          \
    }                                                                                                             \
    static PyObject *fastkw_##name(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *k) {                  \
        WAITING(zone, ((CallFastKeywords)(void (*)(void))orig_##name)(s, a, n, k));                               \
    }                                                                                                             \
    static PyObject *method_##name(PyObject *s, PyTypeObject *t, PyObject *const *a, size_t n, PyObject *k) {     \
        WAITING(zone, ((CallMethod)(void (*)(void))orig_##name)(s, t, a, n, k));                                  \
    }                                                                                                             \
    static Hook hook_##name = {&def_##name, &orig_##name, plain_##name, (PyCFunction)(void (*)(void))keywords_##name, \
                               (PyCFunction)(void (*)(void))fast_##name, (PyCFunction)(void (*)(void))fastkw_##name, \
                               (PyCFunction)(void (*)(void))method_##name};


/* name, zone, module, type ("" for a function of the module), attribute */
#define TARGETS(X)                                              \
    X(sleep, Z_SLEEP, "time", "", "sleep")                      \
    X(select, Z_SELECT, "select", "", "select")                 \
    X(poll, Z_SELECT, "select", "poll", "poll")                 \
    X(epoll, Z_SELECT, "select", "epoll", "poll")               \
    X(recv, Z_SOCKET, "_socket", "socket", "recv")              \
    X(recv_into, Z_SOCKET, "_socket", "socket", "recv_into")    \
    X(recvfrom, Z_SOCKET, "_socket", "socket", "recvfrom")      \
    X(send, Z_SOCKET, "_socket", "socket", "send")              \
    X(sendall, Z_SOCKET, "_socket", "socket", "sendall")        \
    X(accept, Z_SOCKET, "_socket", "socket", "_accept")         \
    X(connect, Z_SOCKET, "_socket", "socket", "connect")        \
    X(queue_get, Z_QUEUE, "_queue", "SimpleQueue", "get")

/* Text written to files and terminals: of interest only where the tool looks for it by itself (hook_writes). */
#define WRITE_TARGETS(X)                                        \
    X(text_write, Z_WRITE, "_io", "TextIOWrapper", "write")     \
    X(text_flush, Z_WRITE, "_io", "TextIOWrapper", "flush")     \
    X(fsync, Z_WRITE, "posix", "", "fsync")

#define DEFINE_STAND_IN(name, zone, module, type, attribute) STAND_INS(name, zone)
TARGETS(DEFINE_STAND_IN)
WRITE_TARGETS(DEFINE_STAND_IN)

/* Locks: (name, type, attribute). All take (self, args, keywords). */
#define LOCK_TARGETS(X)                              \
    X(lock_acquire, "LockType", "acquire")           \
    X(lock_acquire_old, "LockType", "acquire_lock")  \
    X(lock_enter, "LockType", "__enter__")           \
    X(rlock_acquire, "RLock", "acquire")             \
    X(rlock_enter, "RLock", "__enter__")

static PyObject *no_wait; /* (False,) */

/* Take a lock: first without waiting, if that is all the caller says; only what does not succeed then is a wait. */
static PyObject *take_lock(CallKeywords call, PyObject *s, PyObject *a, PyObject *k) {
    int says_nothing = (!a || PyTuple_GET_SIZE(a) == 0) && (!k || PyDict_GET_SIZE(k) == 0);
    int gives_up = a && PyTuple_GET_SIZE(a) > 0 && PyTuple_GET_ITEM(a, 0) == Py_False;
    if (self->gen != page->gen || gives_up) return call(s, a, k);
    if (says_nothing) {
        PyObject *got = call(s, no_wait, NULL);
        if (got != Py_False) return got;
        Py_DECREF(got);
    }
    WAITING(Z_LOCK, call(s, a, k));
}

#define DEFINE_LOCK(name, type, attribute)                                                          \
    static PyMethodDef *def_##name;                                                                 \
    static PyCFunction orig_##name;                                                                 \
    static PyObject *keywords_##name(PyObject *s, PyObject *a, PyObject *k) {                       \
        return take_lock((CallKeywords)(void (*)(void))orig_##name, s, a, k);                       \
    }                                                                                               \
    static Hook hook_##name = {&def_##name, &orig_##name, NULL, (PyCFunction)(void (*)(void))keywords_##name, NULL, NULL, NULL};
LOCK_TARGETS(DEFINE_LOCK)

/* The entry in the method table behind a function or a method of a type, or NULL. */
static PyMethodDef *method_def(const char *module, const char *type, const char *attribute) {
    PyMethodDef *def = NULL;
    PyObject *owner = PyImport_ImportModule(module);
    if (owner && *type) Py_SETREF(owner, PyObject_GetAttrString(owner, type));
    if (owner && *type && !PyType_Check(owner)) { /* select.poll and epoll may be factories: look at what they make */
        PyObject *made = PyObject_CallNoArgs(owner);
        Py_SETREF(owner, made ? Py_NewRef((PyObject *)Py_TYPE(made)) : NULL);
        Py_XDECREF(made);
    }
    PyObject *found = owner ? PyObject_GetAttrString(owner, attribute) : NULL;
    if (found && PyCFunction_CheckExact(found)) def = ((PyCFunctionObject *)found)->m_ml;
    else if (found && Py_IS_TYPE(found, &PyMethodDescr_Type)) def = ((PyMethodDescrObject *)found)->d_method;
    Py_XDECREF(found);
    Py_XDECREF(owner);
    PyErr_Clear();
    return def;
}

/* resource.getrusage: what the user reads there must not show that we reset the kernel's peak (see record/memory.py). */
static PyMethodDef *def_getrusage;
static PyCFunction orig_getrusage;
static PyObject *around_rusage;
static void call_around(int after) {
    PyObject *done = around_rusage ? PyObject_CallOneArg(around_rusage, after ? Py_True : Py_False) : NULL;
    if (PyErr_Occurred()) swallow_error();
    Py_XDECREF(done);
}
static PyObject *stand_in_getrusage(PyObject *s, PyObject *a) {
    call_around(0);
    PyObject *result = ((CallPlain)orig_getrusage)(s, a);
    if (result) call_around(1);
    return result;
}

/* hook_rusage(callback) calls it with False before every reading and True after; None puts the original back. */
static PyObject *hook_rusage(PyObject *module_unused, PyObject *callback) {
    if (callback == Py_None) {
        if (def_getrusage) def_getrusage->ml_meth = orig_getrusage;
        def_getrusage = NULL;
        Py_CLEAR(around_rusage);
        Py_RETURN_FALSE;
    }
    Py_XSETREF(around_rusage, Py_NewRef(callback));
    if (!def_getrusage && (def_getrusage = method_def("resource", "", "getrusage"))) {
        if (def_getrusage->ml_flags & (METH_FASTCALL | METH_KEYWORDS)) {
            def_getrusage = NULL;
            Py_RETURN_FALSE;
        }
        orig_getrusage = def_getrusage->ml_meth;
        def_getrusage->ml_meth = stand_in_getrusage;
    }
    return PyBool_FromLong(def_getrusage != NULL);
}

static int waits_hooked, writes_hooked;

/* Exchange the entry of one function; its name goes to the list, with a `!` in front if it is out of reach. */
static void hook_one(Hook *hook, PyObject *list, const char *module, const char *type, const char *attribute) {
    PyMethodDef *def = method_def(module, type, attribute);
    PyCFunction with = NULL;
    switch (def ? def->ml_flags & ~(METH_CLASS | METH_STATIC | METH_COEXIST) : -1) {
    case METH_O: case METH_NOARGS: case METH_VARARGS: with = hook->plain; break;
    case METH_VARARGS | METH_KEYWORDS: with = hook->keywords; break;
    case METH_FASTCALL: with = hook->fast; break;
    case METH_FASTCALL | METH_KEYWORDS: with = hook->fastkw; break;
    case METH_METHOD | METH_FASTCALL | METH_KEYWORDS: with = hook->method; break;
    }
    if (with) {
        *hook->def = def;
        *hook->original = def->ml_meth;
        def->ml_meth = with;
    }
    PyObject *name = PyUnicode_FromFormat("%s%s%s%s.%s", with ? "" : "!", module, *type ? "." : "", type, attribute);
    if (name) PyList_Append(list, name);
    Py_XDECREF(name);
}

static void unhook_one(Hook *hook) {
    if (*hook->def) (*hook->def)->ml_meth = *hook->original;
    *hook->def = NULL;
}

static PyObject *hook_waits(PyObject *module_unused, PyObject *args_unused) {
    PyObject *list = PyList_New(0);
    if (!list || waits_hooked) return list;
    waits_hooked = 1;
    PyObject *queues = PyImport_ImportModule("_queue");
    Py_XSETREF(empty_queue, queues ? PyObject_GetAttrString(queues, "Empty") : NULL);
    Py_XDECREF(queues);
    PyErr_Clear();
#define HOOK(name, zone, module, type, attribute) hook_one(&hook_##name, list, module, type, attribute);
    TARGETS(HOOK)
#define HOOK_LOCK(name, type, attribute) hook_one(&hook_##name, list, "_thread", type, attribute);
    LOCK_TARGETS(HOOK_LOCK)
    return list;
}

static PyObject *unhook_waits(PyObject *module_unused, PyObject *args_unused) {
#define UNHOOK(name, zone, module, type, attribute) unhook_one(&hook_##name);
    TARGETS(UNHOOK)
#define UNHOOK_LOCK(name, type, attribute) unhook_one(&hook_##name);
    LOCK_TARGETS(UNHOOK_LOCK)
    WRITE_TARGETS(UNHOOK)
    waits_hooked = writes_hooked = 0;
    Py_RETURN_NONE;
}

static PyObject *hook_writes(PyObject *module_unused, PyObject *args_unused) {
    PyObject *list = PyList_New(0);
    if (!list || writes_hooked) return list;
    writes_hooked = 1;
    WRITE_TARGETS(HOOK)
    return list;
}
#endif
