/* The interpreter's frames, as far as we look at them: which instruction calls us, and what a thread is doing.
 *
 * What lives here: everything that knows CPython's private layout, so that a new version is met in one file. Without its
 * internal headers HL_FRAMES is 0: sites are unknown and the Python sampler serves. */
#ifndef HL_FRAMES_H
#define HL_FRAMES_H

#include <Python.h>

#if defined(__linux__) && defined(__has_include) && PY_VERSION_HEX >= 0x030b0000 && PY_VERSION_HEX < 0x030e0000
#if __has_include(<internal/pycore_frame.h>)
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include <internal/pycore_frame.h>
#undef _PyGC_FINALIZED /* the next one defines it again */
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#define HL_FRAMES 1
#endif
#endif
#ifndef HL_FRAMES
#define HL_FRAMES 0
#endif

#if HL_FRAMES
typedef _PyInterpreterFrame IFrame;
#define IFRAME_BYTES offsetof(IFrame, localsplus)
#if PY_VERSION_HEX >= 0x030d0000
#define FRAME_CODE(f) ((void *)(f)->f_executable)
#define FRAME_INSTR(f) ((const char *)(f)->instr_ptr)
#define THREAD_FRAME(t) ((t)->current_frame)
#else
#define FRAME_CODE(f) ((void *)(f)->f_code)
#define FRAME_INSTR(f) ((const char *)(f)->prev_instr)
#define THREAD_FRAME(t) ((t)->cframe->current_frame)
#endif

#if PY_VERSION_HEX >= 0x030d0000
#define current_thread PyThreadState_GetUnchecked
#else
#define current_thread _PyThreadState_UncheckedGet
#endif

/* The interpreter's lock. glibc keeps the words a thread waits on inside its conditions and mutexes, so whoever waits on an
 * address in this range wants the interpreter. */
static inline struct _gil_runtime_state *gil_of(PyInterpreterState *interpreter) {
#if PY_VERSION_HEX >= 0x030c0000
    return interpreter->ceval.gil;
#else
    return &_PyRuntime.ceval.gil;
#endif
}

static inline void gil_range(PyInterpreterState *interpreter, const char **first, const char **end) {
    *first = (const char *)gil_of(interpreter);
    *end = *first ? *first + sizeof(struct _gil_runtime_state) : NULL;
}

/* The thread that has the interpreter now, NULL if nobody has. */
static inline const void *gil_holder(PyInterpreterState *interpreter) {
    struct _gil_runtime_state *gil = gil_of(interpreter);
#if PY_VERSION_HEX >= 0x030d0000
    return gil && __atomic_load_n(&gil->locked, __ATOMIC_RELAXED) > 0 ? __atomic_load_n(&gil->last_holder, __ATOMIC_RELAXED) : NULL;
#else
    if (!gil || __atomic_load_n((int *)&gil->locked._value, __ATOMIC_RELAXED) <= 0) return NULL;
    return (const void *)__atomic_load_n((uintptr_t *)&gil->last_holder._value, __ATOMIC_RELAXED);
#endif
}

/* The instruction that is calling into C now: one address per place in the program. */
static inline const void *calling_instruction(void) {
    PyThreadState *thread = current_thread();
    IFrame *frame = thread ? THREAD_FRAME(thread) : NULL;
    return frame ? FRAME_INSTR(frame) : NULL;
}
#else
static inline const void *calling_instruction(void) { return NULL; }
#endif
#endif
