/* Profiled functions: each call of one is a span.
 *
 * What lives here: the callable that stands in for the function, bound, pickled and shown as the function would be. */
#ifndef HL_PROFILED_H
#define HL_PROFILED_H

#include "hooks.h"
#include "zones.h"

typedef struct {
    STAND_IN_HEAD
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
    Profiled *profiled = (Profiled *)stand_in_new(&Profiled_Type, profiled_call, function);
    if (!profiled) return NULL;
    profiled->zone = (Zone *)Py_NewRef((PyObject *)zone);
    PyObject_GC_Track(profiled);
    return (PyObject *)profiled;
}

static void profiled_dealloc(Profiled *profiled) {
    Zone *zone = profiled->zone;
    stand_in_dealloc((StandIn *)profiled);
    Py_DECREF(zone);
}

/* Pickled by name, as functions are. */
static PyObject *profiled_reduce(PyObject *profiled, PyObject *unused) {
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
    .tp_methods = profiled_methods,
    .tp_getset = profiled_getset,
    STAND_IN_SLOTS,
    .tp_doc = "A function whose calls are spans.",
};

static PyObject *py_wrap(PyObject *module, PyObject *args) {
    PyObject *zone, *function;
    if (!PyArg_ParseTuple(args, "O!O", &Zone_Type, &zone, &function)) return NULL;
    return profiled_new((Zone *)zone, function);
}

#endif
