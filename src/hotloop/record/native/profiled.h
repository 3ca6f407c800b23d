/* Profiled functions: each call of one is a span.
 *
 * What lives here: the callable that stands in for the function, bound, pickled and shown as the function would be. */
#ifndef HL_PROFILED_H
#define HL_PROFILED_H

#include "zones.h"

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

#endif
