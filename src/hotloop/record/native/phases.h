/* Phases: what a stretch of the training loop was for, known when the next thing happens.
 *
 * A hooked call is an event of a phase (an env step: collect; a backward pass: learn). What lies between two events, and
 * model calls (which collect and learn share), is labelled when the next event comes: before an env step it was
 * collecting, before a backward pass learning. What lives here: that deferred labelling, the iterations it implies, and
 * the time before the first event, which is the start-up.
 *
 * Invariant: labelling moves time from one node of a track to another, first off, then on, so the books of a process killed
 * in between still close: what is missing belongs to the innermost open span. */
#ifndef HL_PHASES_H
#define HL_PHASES_H

#include "rows.h"

static Zone *gap_zones[DECIDING][DECIDING]; /* [after][before]; these live as long as the process */
static Zone *startup_zone, *end_zone;

/* ---- places that call a model ---- */

/* What came after the call from this place, the last time. */
typedef struct Site { const void *instruction; uint32_t phase; } Site;
enum { SITES = 4096 };
static Site sites[SITES];

static Site *site_here(void) {
    const void *at = calling_instruction();
    Site *site = &sites[((uintptr_t)at >> 1 ^ (uintptr_t)at >> 13) & (SITES - 1)];
    if (site->instruction != at) *site = (Site){at, 0};
    return site;
}

/* ---- moving what was recorded ---- */

static void move_self(Node *from, Node *to, uint64_t ns) {
    from->rec->self_ns -= ns;
    to->rec->self_ns += ns;
    touch(from);
    touch(to);
}

/* One finished span of a model call moves to the node of another phase. */
static void move_span(Track *track, Pending *span, Zone *zone) {
    Node *from = span->node, *to = find_child(track, from->parent ? from->parent : track->root, zone);
    if (to == from || to == track->overflow) return;
    NodeRec *a = from->rec, *b = to->rec;
    unsigned bucket = bucket_of(span->total);
    if (a->count == 0 || a->hist[bucket] == 0 || a->self_ns < span->own || a->total_ns < span->total) return;
    note_work(to);
    a->count--, b->count++;
    a->total_ns -= span->total, b->total_ns += span->total;
    a->sumsq -= (double)span->total * (double)span->total, b->sumsq += (double)span->total * (double)span->total;
    if (a->sumsq < 0 || !a->count) a->sumsq = 0;
    a->hist[bucket]--, b->hist[bucket]++;
    if (span->total < b->min_ns) b->min_ns = span->total;
    if (span->total > b->max_ns) b->max_ns = span->total;
    if (!a->count) a->min_ns = UINT64_MAX, a->max_ns = 0;
    LabelRec *la = from->label->rec, *lb = to->label->rec;
    uint64_t both = la->union_ns < span->total ? la->union_ns : span->total;
    la->union_ns -= both, lb->union_ns += both;
    move_self(from, to, span->own);
}

static Node *gap_node(Track *track, Zone *zone) {
    Node *node = find_child(track, track->root, zone);
    return node == track->overflow ? NULL : node;
}

/* The process's first env step or update: whatever was recorded before is start-up, and the first iteration begins here. */
COLD static void begin_loop(Track *track) {
    g.in_loop = 1;
    PyObject *done = g.on_loop ? PyObject_CallNoArgs(g.on_loop) : Py_NewRef(Py_None);
    if (!done) swallow_error();
    Py_XDECREF(done);
    if (track->gen != page->gen) return; /* the callback, or another thread meanwhile, ended the recording */
    if (g.on_loop) charge(track, now());
    uint64_t at = track->last;
    for (uint32_t i = 0; i < g.track_count; i++) { /* of all threads: the loop may begin in another one than the main thread */
        Track *other = g.tracks[i];
        int live = !other->retired && other->gen == g.gen;
        if (live) settle(other, other == track ? at : now());
        Node *startup = live && startup_zone ? gap_node(other, startup_zone) : NULL;
        for (Node *node = other->nodes; startup && node; node = node->next)
            if (node != startup && node != other->profiler) move_self(node, startup, node->rec->self_ns);
        other->gap_mark = other->root->rec->self_ns;
        other->pending_count = 0;
        for (Node *node = other->nodes; node; node = node->next) {
            node->self_at_step = node->rec->self_ns;
            node->count_at_step = node->rec->count;
            node->marked_in = 0;
        }
    }
    g.touched_count = 0;
    sh.head->iter_start_ns = at;
    if (!sh.head->first_work_ns) sh.head->first_work_ns = at;
}

/* The time since the last event goes to `zone`. */
static void give_gap(Track *track, Zone *zone) {
    uint64_t gap = track->root->rec->self_ns - track->gap_mark;
    Node *node = gap && zone ? gap_node(track, zone) : NULL;
    if (node) {
        note_work(node);
        move_self(track->root, node, track->root->rec->self_ns - track->gap_mark);
    }
    track->gap_mark = track->root->rec->self_ns;
}

/* An event of `next` begins: whatever waited for it gets its phase. */
static void resolve(Track *track, uint32_t next) {
    settle(track, now());
    give_gap(track, track->phase ? gap_zones[track->phase][next] : startup_zone);
    for (uint32_t i = 0; i < track->pending_count; i++) {
        Pending *span = &track->pending[i];
        if (span->site->phase != next) span->site->phase = next;
        if (span->phase != next && span->zones[next]) move_span(track, span, span->zones[next]);
    }
    track->pending_count = 0;
    track->phase = next;
}

/* Whatever waits now stays as it was guessed: an iteration or the recording ends here. A thread without events keeps its
 * time; what is in a row may not move any more. */
static void unresolved(Track *track, Zone *zone) {
    give_gap(track, track->phase ? zone : NULL);
    track->pending_count = 0;
}

/* Its thread is gone: no event of it will come. */
static void settle_ended(Track *track) { unresolved(track, gap_zones[track->phase][track->phase]); }

/* What was begun after the last env step or update (a last evaluation, saving, workers that end) is no part of the loop. */
static void end_tail(Track *track) {
    Node *end = end_zone ? gap_node(track, end_zone) : NULL;
    for (Node *node = track->nodes; end && node; node = node->next)
        if (node != end && node->work == g.work && node->rec->self_ns > node->self_at_work)
            move_self(node, end, node->rec->self_ns - node->self_at_work);
}

static void settle_phases(int ending) {
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *track = g.tracks[i];
        if (track->retired || track->gen != g.gen) continue;
        unresolved(track, ending ? end_zone : gap_zones[track->phase][track->phase]);
    }
}

/* After the last row, which needs to know what came after the last work. */
static void settle_tails(void) {
    for (uint32_t i = 0; i < g.track_count && g.in_loop; i++) {
        Track *track = g.tracks[i];
        if (!track->retired && track->gen == g.gen && track->phase) end_tail(track);
    }
}

/* Has something been learned since the iteration began? Without any learning, an episode ends one. */
FLATTEN int iteration_due(void) { return g.learned || (g.episode_ended && !g.learns); }

/* An env step begins: is an iteration over? Every one is counted; short ones share a row. */
FLATTEN void maybe_iterate(Track *track) {
    if (LIKELY(!iteration_due()) || g.manual_steps) return;
    g.learned = g.episode_ended = 0;
    if (track->last - sh.head->iter_start_ns >= ITERATION_LEAST_NS) do_step();
    else g.iteration++, g.unwritten++;
}

/* Recording ends: the last iteration is over too, if something was learned in it. Every track is accounted for up to now. */
static void end_iterations(void) {
    uint32_t due = !g.manual_steps && g.in_loop && iteration_due();
    if (!due && !g.unwritten) return;
    g.learned = g.episode_ended = 0;
    close_last(due, end_zone ? end_zone->label : NULL);
}

/* phases_start(zones): a list of (after, before, zone), and the zones of start-up and end. */
static PyObject *py_phases_start(PyObject *module, PyObject *args) {
    PyObject *list, *first, *last;
    if (!PyArg_ParseTuple(args, "OOO", &list, &first, &last)) return NULL;
    PyObject *fast = PySequence_Fast(list, "zones must be a sequence");
    if (!fast) return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        unsigned after, before;
        PyObject *zone;
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(fast, i), "IIO", &after, &before, &zone)) break;
        if (after < DECIDING && before < DECIDING) gap_zones[after][before] = (Zone *)Py_NewRef(zone);
    }
    Py_DECREF(fast);
    startup_zone = (Zone *)Py_NewRef(first);
    end_zone = (Zone *)Py_NewRef(last);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}
#endif
