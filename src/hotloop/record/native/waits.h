/* Known waits: sleep, locks, sockets, select, queues.
 *
 * What lives here: one stand-in per blocking C function of the standard library. The function's entry in its method
 * table is exchanged, so every reference to it is covered, however it was imported, and put back by unhook_waits().
 * Rejected: patching attributes, which misses `from time import sleep` and cannot reach locks at all.
 *
 * Invariant: a stand-in calls the original exactly as it was called; it adds a wait span only on a thread that already
 * records. A lock is first tried without blocking, so an uncontended one costs nothing and leaves no trace. */
#ifndef HL_WAITS_H
#define HL_WAITS_H

#include "hot.h"

typedef PyObject *(*CallPlain)(PyObject *, PyObject *);
typedef PyObject *(*CallKeywords)(PyObject *, PyObject *, PyObject *);
typedef PyObject *(*CallFast)(PyObject *, PyObject *const *, Py_ssize_t);
typedef PyObject *(*CallFastKeywords)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
typedef PyObject *(*CallMethod)(PyObject *, PyTypeObject *, PyObject *const *, size_t, PyObject *);

#define RECORDING() (self->gen == page->gen)
#define WAITING(zone, call)                      \
    if (!RECORDING()) return call;               \
    span_enter(reserved_zones[zone]);            \
    PyObject *result = call;                     \
    span_exit(reserved_zones[zone]);             \
    return result

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
    }

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

#define DEFINE_STAND_IN(name, zone, module, type, attribute) STAND_INS(name, zone)
TARGETS(DEFINE_STAND_IN)

/* Locks: (name, type, attribute). All take (self, args, keywords), or (self, args) for `__enter__` of later Pythons. */
#define LOCK_TARGETS(X)                              \
    X(lock_acquire, "LockType", "acquire")           \
    X(lock_acquire_old, "LockType", "acquire_lock")  \
    X(lock_enter, "LockType", "__enter__")           \
    X(rlock_acquire, "RLock", "acquire")             \
    X(rlock_enter, "RLock", "__enter__")

static PyObject *no_args, *no_wait; /* () and (False,) */

/* Blocking, with nothing said about a time limit: the only case that is tried without waiting first. */
static int plain_acquire(PyObject *args, PyObject *keywords) {
    return (!args || PyTuple_GET_SIZE(args) == 0) && (!keywords || PyDict_GET_SIZE(keywords) == 0);
}

static int gives_up(PyObject *args) {
    return args && PyTuple_GET_SIZE(args) > 0 && PyTuple_GET_ITEM(args, 0) == Py_False;
}

#define DEFINE_LOCK(name, type, attribute)                                                                        \
    static PyMethodDef *def_##name;                                                                               \
    static PyCFunction orig_##name;                                                                               \
    static PyObject *call_##name(PyObject *s, PyObject *a, PyObject *k) {                                         \
        if (def_##name->ml_flags & METH_KEYWORDS) return ((CallKeywords)(void (*)(void))orig_##name)(s, a, k);    \
        return ((CallPlain)orig_##name)(s, a);                                                                    \
    }                                                                                                             \
    static PyObject *keywords_##name(PyObject *s, PyObject *a, PyObject *k) {                                     \
        if (!RECORDING() || gives_up(a)) return call_##name(s, a, k);                                             \
        if (plain_acquire(a, k) && def_##name->ml_flags & METH_KEYWORDS) {                                        \
            PyObject *got = call_##name(s, no_wait, NULL);                                                        \
            if (got != Py_False) return got;                                                                      \
            Py_DECREF(got);                                                                                       \
        }                                                                                                         \
        span_enter(reserved_zones[Z_LOCK]);                                                                       \
        PyObject *result = call_##name(s, a, k);                                                                  \
        span_exit(reserved_zones[Z_LOCK]);                                                                        \
        return result;                                                                                            \
    }                                                                                                             \
    static PyObject *plain_##name(PyObject *s, PyObject *a) { return keywords_##name(s, a, NULL); }
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
    Py_XDECREF(done);
    PyErr_Clear();
}
static PyObject *stand_in_getrusage(PyObject *s, PyObject *a) {
    call_around(0);
    PyObject *result = ((CallPlain)orig_getrusage)(s, a);
    if (result) call_around(1);
    return result;
}

/* hook_rusage(callback) calls it with False before every reading and True after; None puts the original back. */
static PyObject *hook_rusage(PyObject *module_unused, PyObject *callback) {
    (void)module_unused;
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

static int waits_hooked;

static void note_hook(PyObject *list, const char *module, const char *type, const char *attribute, int live) {
    PyObject *name = PyUnicode_FromFormat("%s%s%s%s.%s", live ? "" : "!", module, *type ? "." : "", type, attribute);
    if (name) PyList_Append(list, name);
    Py_XDECREF(name);
}

static PyObject *hook_waits(PyObject *module_unused, PyObject *args_unused) {
    (void)module_unused, (void)args_unused;
    PyObject *list = PyList_New(0);
    if (!list) return NULL;
    if (waits_hooked) return list;
    waits_hooked = 1;
#define HOOK(name, zone, module, type, attribute)                                                   \
    if ((def_##name = method_def(module, type, attribute))) {                                       \
        PyCFunction with = NULL;                                                                    \
        switch (def_##name->ml_flags & ~(METH_CLASS | METH_STATIC | METH_COEXIST)) {                \
        case METH_O: case METH_NOARGS: case METH_VARARGS: with = plain_##name; break;               \
        case METH_VARARGS | METH_KEYWORDS: with = (PyCFunction)(void (*)(void))keywords_##name; break; \
        case METH_FASTCALL: with = (PyCFunction)(void (*)(void))fast_##name; break;                 \
        case METH_FASTCALL | METH_KEYWORDS: with = (PyCFunction)(void (*)(void))fastkw_##name; break; \
        case METH_METHOD | METH_FASTCALL | METH_KEYWORDS: with = (PyCFunction)(void (*)(void))method_##name; \
        }                                                                                           \
        orig_##name = def_##name->ml_meth;                                                          \
        if (with) def_##name->ml_meth = with;                                                       \
        else def_##name = NULL;                                                                     \
    }                                                                                               \
    note_hook(list, module, type, attribute, def_##name != NULL);
    TARGETS(HOOK)
#define HOOK_LOCK(name, type, attribute)                                                            \
    if ((def_##name = method_def("_thread", type, attribute))) {                                    \
        int flags = def_##name->ml_flags & ~METH_COEXIST;                                           \
        orig_##name = def_##name->ml_meth;                                                          \
        if (flags == (METH_VARARGS | METH_KEYWORDS))                                                \
            def_##name->ml_meth = (PyCFunction)(void (*)(void))keywords_##name;                     \
        else if (flags == METH_VARARGS || flags == METH_NOARGS) def_##name->ml_meth = plain_##name; \
        else def_##name = NULL;                                                                     \
    }                                                                                               \
    note_hook(list, "_thread", type, attribute, def_##name != NULL);
    LOCK_TARGETS(HOOK_LOCK)
    return list;
}

static PyObject *unhook_waits(PyObject *module_unused, PyObject *args_unused) {
    (void)module_unused, (void)args_unused;
    if (waits_hooked) {
#define UNHOOK(name, zone, module, type, attribute) \
    if (def_##name) def_##name->ml_meth = orig_##name;
        TARGETS(UNHOOK)
#define UNHOOK_LOCK(name, type, attribute) \
    if (def_##name) def_##name->ml_meth = orig_##name;
        LOCK_TARGETS(UNHOOK_LOCK)
    }
    waits_hooked = 0;
    Py_RETURN_NONE;
}
#endif
