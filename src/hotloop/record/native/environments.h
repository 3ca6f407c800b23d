/* Environments: which one a call is of, which are parts of others, and what their steps count.
 *
 * What lives here: an identity for every environment that is stepped or reset, for as long as it lives; whether it is stepped
 * inside another one on another thread; which of its steps only reset. Who may touch it: hooks.h.
 *
 * Invariant: no environment is kept alive (weak references without callbacks, addresses), and none of its code runs here. What
 * is held back until it is known to be part of another is counted as soon as it is not, at the latest when recording ends. */
#ifndef HL_ENVIRONMENTS_H
#define HL_ENVIRONMENTS_H

#include "phases.h"

enum { NEST_UNKNOWN, NEST_INSIDE, NEST_OUTERMOST };
enum { MODE_UNASKED = -1, MODE_EVERY_STEP, MODE_NEXT_STEP }; /* which steps of a finished environment step it */
enum { ENDS_UNKNOWN, ENDS_TOLD, ENDS_INSIDE }; /* does its result say which episodes ended, or only those of what it steps? */

typedef struct {
    PyObject *object, *weak; /* its address, NULL when it is gone; no weak reference where its class allows none */
    PyTypeObject *type;
    uint64_t serial;
    EnvRec *rec;             /* NULL: there are more than the header has room for */
    int numbered, nest, mode, ends;
    uint64_t holder, asked_of[ASKED_MOST]; /* serials: the environment it was found in, those it was not */
    uint32_t asked, contained, waited;
    uint64_t held_steps, held_episodes;    /* not counted, because another environment's step holds them */
    char *done;                            /* which of its environments ended an episode in the last step */
    int64_t done_n;
} Env;

static struct {
    Env **table; /* open-addressed, by address */
    uint32_t room, used, recs;
    uint64_t gen, serial;
    Env *last;
} ev;

static PyObject *on_mode;  /* environment -> does it reset itself in the step after the last one? */
static PyObject *on_holds; /* (outer, inner) -> can the one be reached from the other? */

/* ---- identity ---- */

FLATTEN int env_is(const Env *env, PyObject *object) {
    if (env->object != object) return 0;
    return env->weak ? ((PyWeakReference *)env->weak)->wr_object == object : env->type == Py_TYPE(object);
}

/* It is part of no other: what was held back counts. */
static void env_outermost(Env *env) {
    env->nest = NEST_OUTERMOST;
    if (ev.gen == g.gen && sh.head && (env->held_steps || env->held_episodes)) {
        sh.head->counters[COUNTER_ENV_STEPS].total += env->held_steps;
        sh.head->counters[COUNTER_EPISODES].total += env->held_episodes;
        g.hook_counts |= 1;
        if (env->held_episodes) g.episode_ended = 1;
    }
    env->held_steps = env->held_episodes = 0;
}

/* It is gone; whatever is made at its address is another one. */
static void env_close(Env *env) {
    if (env->nest == NEST_UNKNOWN) env_outermost(env);
    env->object = NULL;
    Py_CLEAR(env->weak);
    free(env->done);
    env->done = NULL;
    env->done_n = 0;
}

static uint32_t env_place(PyObject *object, uint32_t room) {
    return (uint32_t)(((uint64_t)(uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 32) & (room - 1);
}

COLD static void envs_drop(void) {
    for (uint32_t i = 0; i < ev.room; i++) {
        if (!ev.table[i]) continue;
        ev.table[i]->nest = NEST_OUTERMOST, ev.table[i]->held_steps = ev.table[i]->held_episodes = 0; /* of another recording */
        env_close(ev.table[i]);
        free(ev.table[i]);
    }
    free(ev.table);
    ev.table = NULL;
    ev.last = NULL;
    ev.room = ev.used = ev.recs = 0;
    ev.gen = g.gen;
}

/* Room for one more; those that are gone leave. */
COLD static int envs_grow(void) {
    uint32_t live = 0, room = 64;
    for (uint32_t i = 0; i < ev.room; i++) {
        Env *env = ev.table[i];
        if (env && env->object && env->weak && ((PyWeakReference *)env->weak)->wr_object != env->object) env_close(env);
        live += env && env->object;
    }
    while (room < live * 4) room *= 2;
    Env **table = calloc(room, sizeof *table);
    if (!table) return -1;
    for (uint32_t i = 0; i < ev.room; i++) {
        Env *env = ev.table[i];
        if (!env) continue;
        if (!env->object) {
            free(env);
            continue;
        }
        uint32_t at = env_place(env->object, room);
        while (table[at]) at = (at + 1) & (room - 1);
        table[at] = env;
    }
    free(ev.table);
    ev.table = table;
    ev.room = room;
    ev.used = live;
    ev.last = NULL;
    return 0;
}

static Env *env_known(PyObject *object) {
    if (ev.gen != g.gen) envs_drop();
    for (uint32_t i = ev.room ? env_place(object, ev.room) : 0; ev.room && ev.table[i]; i = (i + 1) & (ev.room - 1)) {
        Env *env = ev.table[i];
        if (env->object != object) continue;
        if (env_is(env, object)) return env;
        env_close(env);
    }
    return NULL;
}

COLD static Env *env_new(PyObject *object) {
    uint64_t gen = g.gen;
    PyObject *weak = PyWeakref_NewRef(object, NULL); /* may collect garbage, and with it run code that comes here too */
    PyErr_Clear();
    Env *env = gen == g.gen ? env_known(object) : NULL;
    if (env || gen != g.gen || ((ev.used + 1) * 4 > ev.room * 3 && envs_grow()) || !(env = calloc(1, sizeof *env))) {
        Py_XDECREF(weak);
        return gen == g.gen ? env : NULL;
    }
    *env = (Env){.object = object, .weak = weak, .type = Py_TYPE(object), .serial = ++ev.serial, .mode = MODE_UNASKED};
    uint32_t at = env_place(object, ev.room);
    while (ev.table[at]) at = (at + 1) & (ev.room - 1);
    ev.table[at] = env;
    ev.used++;
    return env;
}

/* The environment, by itself and not by its address alone: that of one that is gone is soon another's. */
static Env *env_find(PyObject *object) {
    Env *env = env_known(object);
    if (!env) env = env_new(object);
    return ev.last = env;
}

FLATTEN Env *env_of(PyObject *object) {
    return LIKELY(ev.last && ev.gen == g.gen && env_is(ev.last, object)) ? ev.last : env_find(object);
}

/* Its row of steps, so that one slow one among many can be named; they are numbered as they begin. */
FLATTEN EnvRec *env_record(Env *env) {
    if (UNLIKELY(!env->numbered)) {
        env->numbered = 1;
        env->rec = ev.recs < ENV_SLOTS ? &sh.head->envs[ev.recs++] : NULL;
    }
    return env->rec;
}

static void count_env(EnvRec *rec, Track *track, Zone *layer, uint64_t ns) {
    rec->calls++;
    rec->ns += ns;
    rec->track_plus_one = track->id + 1;
    rec->label_plus_one = layer && layer->label ? layer->label->id + 1 : 0;
}

/* Recording ends: what nobody could decide counts. */
static void envs_end(void) {
    for (uint32_t i = 0; ev.gen == g.gen && i < ev.room; i++)
        if (ev.table[i] && ev.table[i]->nest == NEST_UNKNOWN) env_outermost(ev.table[i]);
}

/* ---- questions that Python code of ours answers; its time is ours ---- */

COLD static int ask(PyObject *whom, PyObject *first, PyObject *second) {
    if (!whom || self->gen != page->gen) return 0;
    settle(self, now());
    Py_INCREF(first); /* of another thread, perhaps, which goes on meanwhile */
    PyObject *answer = PyObject_CallFunctionObjArgs(whom, first, second, NULL);
    int yes = answer ? answer == Py_True : 0;
    if (!answer) swallow_error();
    Py_XDECREF(answer);
    Py_DECREF(first);
    if (self->gen == page->gen) charge(self, now());
    return yes;
}

/* ---- inside another, on another thread ---- */

enum { HELD_BY_NONE, HELD_INSIDE, HELD_PERHAPS };
typedef struct { Track *track; uint64_t call; int waited; } Holder;

/* Does the thread wait for others? Sleep, sockets and the like wait for something else. */
static int waits_for_others(Track *track) {
    Zone *zone = track->top->label->zone;
    if (track->top->label->rec->kind != KIND_WAIT) return 0;
    return PyUnicode_Compare(zone->name, reserved_zones[Z_LOCK]->name) == 0 ||
           PyUnicode_Compare(zone->name, reserved_zones[Z_QUEUE]->name) == 0;
}

static int holder_open(const Holder *holder, uint64_t gen) {
    Track *track = holder->track;
    return !track->retired && track->gen == gen && track->env && track->env_calls == holder->call;
}

/* Is it reachable from that one? Asked once of each, and of a few only. */
static int env_held_by(Env *env, PyObject *object, PyObject *outer, uint64_t serial) {
    if (env->holder) return env->holder == serial;
    for (uint32_t i = 0; i < env->asked; i++)
        if (env->asked_of[i] == serial) return 0;
    if (env->asked == ASKED_MOST) return 0;
    env->asked_of[env->asked++] = serial;
    return ask(on_holds, outer, object);
}

/* Which environment's call on another thread holds this one? Of several, the one that another of them holds. An environment
 * that is ever stepped outside of all others is part of none, for good. Asking may end the recording. */
COLD static int find_holder(Track *track, Env *env, PyObject *object, int steps, Holder *holder) {
    uint64_t gen = page->gen, closest = 0;
    Holder open = {0}, found = {0};
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *other = g.tracks[i];
        if (other == track || other->retired || other->gen != gen || !other->env || other->env == object) continue;
        Holder one = {other, other->env_calls, 0};
        Env *outer = on_holds && other->env != Py_None ? env_of(other->env) : NULL;
        uint64_t serial = outer && page->gen == gen ? outer->serial : 0, within = serial ? outer->holder : 0;
        int held = serial && env_held_by(env, object, other->env, serial);
        if (page->gen != gen) return HELD_BY_NONE;
        if (!holder_open(&one, gen)) continue;
        if (held && (!closest || within == closest)) found = one, closest = serial;
        one.waited = waits_for_others(other);
        if (!open.track || (one.waited && !open.waited)) open = one;
    }
    if (closest) {
        env->holder = closest;
        env->nest = NEST_INSIDE;
        *holder = found;
        return HELD_INSIDE;
    }
    if (open.track && !env->holder) {
        *holder = open;
        return env->nest == NEST_INSIDE ? HELD_INSIDE : steps ? HELD_PERHAPS : HELD_BY_NONE;
    }
    if (steps) env_outermost(env);
    return HELD_BY_NONE;
}

/* A step ended that another environment's call held when it began: was it open all the while, and did it wait for this one? */
static void watch_step(Env *env, Holder *holder, uint64_t gen) {
    if (!holder_open(holder, gen)) {
        env_outermost(env);
        return;
    }
    if (env->nest != NEST_UNKNOWN) return;
    env->contained++;
    env->waited += holder->waited || waits_for_others(holder->track);
    if (env->contained >= INSIDE_LEAST && 2 * env->waited >= env->contained) env->nest = NEST_INSIDE;
    else if (env->contained >= WATCHED_MOST) env_outermost(env);
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

/* Is this number of an array 0 or 1? -1: neither, or of another kind. */
static int flag_of(const char *at, Py_ssize_t bytes, char kind) {
    double number = -1;
    float half;
    int32_t small;
    int64_t large;
    if (kind == 'd' && bytes == 8) memcpy(&number, at, 8);
    else if (kind == 'f' && bytes == 4) memcpy(&half, at, 4), number = half;
    else if (strchr("iIlL", kind) && bytes == 4) memcpy(&small, at, 4), number = small;
    else if (strchr("lLqQ", kind) && bytes == 8) memcpy(&large, at, 8), number = (double)large;
    return number == 0 ? 0 : number == 1 ? 1 : -1;
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
    int ok = 1;
    char kind = view.format && view.format[0] && !view.format[1] ? view.format[0] : '?';
    Py_ssize_t bytes = view.itemsize, count = bytes ? view.len / bytes : 0;
    for (Py_ssize_t i = 0; ok && bytes > 1 && i < n && i < count; i++) ok = flag_of((char *)view.buf + i * bytes, bytes, kind) >= 0;
    for (Py_ssize_t i = 0; ok && i < n && i < count; i++)
        done[i] |= bytes == 1 ? ((char *)view.buf)[i] != 0 : flag_of((char *)view.buf + i * bytes, bytes, kind) > 0;
    PyBuffer_Release(&view);
    return ok;
}

/* Of an environment that resets what ended in the step after: how many of the `n` did nothing else in this one? */
static uint64_t only_reset(Env *env, const char *done, int64_t n) {
    uint64_t resets = 0;
    for (int64_t i = 0; env->done_n == n && i < n; i++) resets += env->done[i] != 0;
    if (env->done_n != n) {
        char *grown = realloc(env->done, (size_t)n);
        if (!grown) return resets;
        env->done = grown;
        env->done_n = n;
    }
    memcpy(env->done, done, (size_t)n);
    return resets;
}

/* How many environments a result is of. */
static int64_t count_rows(PyObject *result) {
    return PyTuple_Check(result) && PyTuple_GET_SIZE(result) >= 2 ? length_of(PyTuple_GET_ITEM(result, 1)) : 1;
}

/* Which of them ended an episode, and how many; 0 where the result does not say. */
static int read_ends(PyObject *result, char *done, int64_t n, uint64_t *episodes) {
    Py_ssize_t size = PyTuple_Check(result) ? PyTuple_GET_SIZE(result) : 0;
    int known = done && size >= 3 ? read_flags(PyTuple_GET_ITEM(result, 2), done, n) : 0;
    if (done && size >= 5) known |= read_flags(PyTuple_GET_ITEM(result, 3), done, n);
    *episodes = 0;
    for (int64_t i = 0; known && i < n; i++) *episodes += done[i] != 0;
    return known;
}

/* The result of what an environment steps, where its own does not tell: of those within one another, the outermost that does. */
COLD static void hear_ends(Track *outer, uint64_t gen, uint64_t before, PyObject *result) {
    int64_t n = count_rows(result);
    char few[64] = {0}, *done = n <= 64 ? few : calloc((size_t)n, 1);
    uint64_t episodes;
    int known = read_ends(result, done, n, &episodes);
    if (done != few) free(done);
    if (known && page->gen == gen && outer->gen == gen) outer->heard = before + episodes;
}

/* Looking at a result may run its own code, which may end the recording: first look, then write. `held`: by another's step. */
static void count_step(Track *track, uint64_t gen, Env *env, PyObject *object, PyObject *result, int held) {
    int64_t n = count_rows(result);
    char few[64] = {0}, *done = n <= 64 ? few : calloc((size_t)n, 1);
    uint64_t episodes, resets = 0;
    int known = read_ends(result, done, n, &episodes);
    if (env && !held && page->gen == gen) {
        env->ends = known ? ENDS_TOLD : ENDS_INSIDE;
        if (!known) episodes = track->heard;
    }
    if (page->gen == gen && env && UNLIKELY(env->mode == MODE_UNASKED)) {
        env->mode = MODE_EVERY_STEP;
        if (ask(on_mode, object, NULL) && page->gen == gen) env->mode = MODE_NEXT_STEP;
    }
    int goes_on = page->gen == gen && track->gen == gen;
    if (goes_on && env && UNLIKELY(env->mode == MODE_NEXT_STEP) && done && !held) resets = only_reset(env, done, n);
    if (done != few) free(done);
    if (!goes_on) return;
    if (UNLIKELY(track->inside & IN_TRIAL)) g.trial_counted++;
    n -= (int64_t)resets;
    if (UNLIKELY(held)) {
        env->held_steps += (uint64_t)n;
        env->held_episodes += episodes;
    } else if (track->within_phase == PHASE_EVAL) {
        g.eval_counted++;
        do_count(g.eval_steps, n, 1);
    } else {
        if (LIKELY(!(track->inside & IN_TEST))) g.trained++;
        sh.head->counters[COUNTER_ENV_STEPS].total += (uint64_t)n;
        sh.head->counters[COUNTER_EPISODES].total += episodes;
        sh.head->counters[COUNTER_AUTORESETS].total += resets;
        g.hook_counts |= 1;
        work_done(track->last);
        if (episodes) g.episode_ended = 1;
    }
}

/* Of a step that somebody else counts: the episodes that ended in it. */
static void count_ends(Track *track) {
    if (track->within_phase == PHASE_EVAL || !track->heard) return;
    sh.head->counters[COUNTER_EPISODES].total += track->heard;
    g.episode_ended = 1;
}

/* A reset counts where it holds no other, wherever it is called. */
static void count_reset(Track *track, Env *env, uint64_t before) {
    if (env) env->done_n = 0;
    if (track->resets != before) return;
    track->resets++;
    if (track->within_phase != PHASE_EVAL) sh.head->counters[COUNTER_RESETS].total++;
}
#endif
