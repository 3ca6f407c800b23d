/* Iterations and work counters.
 *
 * What lives here: step(), which closes the process-wide iteration and writes one row (self time and calls per path,
 * increments of the counters), and count(). Invariant: rows never outgrow their block. When it is full, neighbours are
 * merged pairwise into the other block and one word makes that the current one. */
#ifndef HL_ROWS_H
#define HL_ROWS_H

#include "hot.h"

static int counter_add(PyObject *name) {
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(name, &bytes);
    uint64_t offset = text && g.counters < COUNTER_SLOTS ? string_keep(text, (size_t)bytes) : 0;
    PyErr_Clear();
    if (!offset) {
        lose(LOSS_COUNTER_OVERFLOW);
        return -1;
    }
    CounterRec *rec = &sh.head->counters[g.counters];
    *rec = (CounterRec){.name_bytes = (uint64_t)bytes};
    publish(&rec->name, offset);
    Py_INCREF(name);
    Py_XSETREF(g.counter_names[g.counters], name);
    return (int)g.counters++;
}

static void counters_start(void) {
    g.counters = 0;
    for (size_t i = 0; i < sizeof COUNTERS / sizeof *COUNTERS; i++) {
        PyObject *name = PyUnicode_InternFromString(COUNTERS[i]);
        if (name) counter_add(name);
        Py_XDECREF(name);
        PyErr_Clear();
    }
}

static void work_done(uint64_t at) {
    if (!sh.head->first_work_ns) sh.head->first_work_ns = at;
    sh.head->last_work_ns = at;
    g.work++;
    g.work_paused_ns = sh.head->paused_ns;
}

/* Work that hooks count themselves; what the script says of it is kept apart, or it would count twice. */
static PyObject *said_names[WORK_COUNTERS];

static void do_count(PyObject *name, int64_t n, int hooked) {
    if (self->gen != page->gen && !wake()) return;
    for (uint32_t k = 0; k < WORK_COUNTERS && k < g.counters; k++) {
        if (g.counter_names[k] != name && PyUnicode_Compare(g.counter_names[k], name) != 0) continue;
        if (hooked) g.hook_counts |= 1 << k;
        else if (g.hook_counts & 1 << k && said_names[k]) name = said_names[k];
        break;
    }
    int i = -1;
    for (uint32_t k = 0; k < g.counters && i < 0; k++)
        if (g.counter_names[k] == name) i = (int)k;
    for (uint32_t k = 0; k < g.counters && i < 0; k++)
        if (PyUnicode_Compare(g.counter_names[k], name) == 0) i = (int)k;
    if (i < 0 && (i = counter_add(name)) < 0) return;
    sh.head->counters[i].total += (uint64_t)n;
    if (i < WORK_COUNTERS) work_done(now());
}

static int scratch_ready(void) {
    uint32_t need = sh.tables[PATHS].items;
    if (need <= g.scratch_room) return 1;
    uint32_t room = need + need / 2 + 64;
    EntryRec *scratch = realloc(g.scratch, room * sizeof *scratch);
    if (scratch) g.scratch = scratch;
    uint32_t *list = realloc(g.scratch_list, room * sizeof *list);
    if (list) g.scratch_list = list;
    if (!scratch || !list) return 0;
    memset(scratch, 0, room * sizeof *scratch);
    g.scratch_room = room;
    return 1;
}

/* Adds to the scratch entry of a path; `list` holds the paths in use. */
static uint32_t scratch_add(uint32_t count, uint32_t path, uint32_t calls, uint64_t value) {
    EntryRec *entry = &g.scratch[path];
    if (!entry->key) {
        entry->key = path + 1;
        g.scratch_list[count++] = path;
    }
    entry->calls += calls;
    entry->value += value;
    return count;
}

/* Writes scratch and counters as a row at `at`, clears the scratch; answers the words used. */
static uint32_t row_write(uint64_t *at, RowRec row, uint32_t count, const int64_t *increments) {
    uint32_t room = g.row_words_max / 4, fits = (room - 4 - 2 * COUNTER_SLOTS) / 2;
    EntryRec *out = (EntryRec *)(at + 4), rest = {0};
    row.entries = 0;
    for (uint32_t i = 0; i < count; i++) {
        EntryRec *entry = &g.scratch[g.scratch_list[i]];
        if (row.entries < fits - 1) {
            *out++ = (EntryRec){entry->key - 1, entry->calls, entry->value};
            row.entries++;
        } else {
            rest.value += entry->value;
            lose(LOSS_ITERATION_OVERFLOW);
        }
        *entry = (EntryRec){0};
    }
    if (rest.value) {
        *out++ = rest;
        row.entries++;
    }
    row.counters = 0;
    for (uint32_t i = 0; i < COUNTER_SLOTS; i++) {
        if (!increments[i]) continue;
        *out++ = (EntryRec){i, 0, (uint64_t)increments[i]};
        row.counters++;
    }
    memcpy(at, &row, sizeof row);
    return (uint32_t)((uint64_t *)out - at);
}

static uint64_t *rows_of(uint32_t which) { return (uint64_t *)(sh.tables[ITERATIONS].blocks[which] + 1); }

/* Halve the number of rows: neighbours become one. */
COLD static uint32_t rows_merge(uint32_t which, uint32_t used) {
    uint64_t *from = rows_of(which), *to = rows_of(!which);
    uint32_t at = 0, out = 0;
    while (at < used) {
        RowRec merged = {0};
        int64_t increments[COUNTER_SLOTS] = {0};
        uint32_t count = 0;
        for (int pair = 0; pair < 2 && at < used; pair++) {
            RowRec row;
            memcpy(&row, from + at, sizeof row);
            EntryRec *entries = (EntryRec *)(from + at + 4);
            if (pair == 0) merged = row;
            else {
                merged.merged += row.merged;
                merged.end_ns = row.end_ns;
            }
            for (uint32_t i = 0; i < row.entries; i++)
                count = scratch_add(count, entries[i].key, entries[i].calls, entries[i].value);
            for (uint32_t i = 0; i < row.counters; i++)
                increments[entries[row.entries + i].key] += (int64_t)entries[row.entries + i].value;
            at += 4 + 2 * (row.entries + row.counters);
        }
        out += row_write(to + out, merged, count, increments);
    }
    publish(&sh.head->iter_state, (uint64_t)!which << 32 | out);
    return out;
}

/* Whatever has time in this row is on the list of touched nodes. */
static void touch_open(Track *track) {
    touch(track->root);
    touch(track->profiler);
    touch(track->top);
    if (track->idle) touch(track->idle);
    for (uint32_t d = 0; d < track->depth; d++) touch(track->frames[d].node);
}

/* The row of the iterations since the last one; `tails`: without what came after the last work. */
static void put_row(uint32_t iterations, uint64_t at, int tails) {
    Header *h = sh.head;
    if (!g.row_words_max || !scratch_ready()) return;
    uint32_t which = (uint32_t)(h->iter_state >> 32), used = (uint32_t)h->iter_state;
    while (used + g.row_words_max / 4 > g.row_words_max) {
        used = rows_merge(which, used);
        which = !which;
    }
    uint32_t count = 0;
    int64_t increments[COUNTER_SLOTS] = {0};
    for (uint32_t i = 0; i < g.touched_count; i++) {
        Node *node = g.touched[i];
        uint64_t self_ns = node->rec->self_ns - node->self_at_step, calls = node->rec->count - node->count_at_step;
        if (tails) {
            self_ns -= node->tail;
            if (node->work == g.work && node->count_at_work >= node->count_at_step) calls = node->count_at_work - node->count_at_step;
        }
        node->self_at_step = node->rec->self_ns;
        node->count_at_step = node->rec->count;
        if (self_ns || calls) count = scratch_add(count, node->path, (uint32_t)calls, self_ns);
    }
    for (uint32_t i = 0; i < g.counters; i++) {
        increments[i] = (int64_t)(h->counters[i].total - h->counters[i].at_step);
        h->counters[i].at_step = h->counters[i].total;
    }
    RowRec row = {.first = g.iteration - g.unwritten, .merged = iterations, .start_ns = h->iter_start_ns, .end_ns = at};
    used += row_write(rows_of(which) + used, row, count, increments);
    publish(&h->iter_state, (uint64_t)which << 32 | used);
}

/* Close an iteration, and with it the row it shares with the short ones before it. */
static void do_step(void) {
    Track *track = self;
    if (track->gen != page->gen && !(track = wake())) return;
    uint64_t at = now();
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *other = g.tracks[i];
        if (other->retired || other->gen != g.gen) continue;
        settle(other, at);
        touch_open(other);
    }
    settle_phases(0);
    put_row(g.unwritten + 1, at, 0);
    g.touched_count = g.unwritten = 0;
    g.iteration++;
    g.row++;
    sh.head->iter_start_ns = at;
    publish(&sh.head->iterations, g.iteration);
    work_done(at);
    next_window();
    charge(track, now());
}

/* Takes time off what the node has in this row. */
static uint64_t take_tail(Node *node, uint64_t most) {
    uint64_t has = node->rec->self_ns - node->self_at_step - node->tail, taken = has < most ? has : most;
    node->tail += taken;
    return taken;
}

/* How much of the track's time came after an instant: of this life and the one before it, which ended with a pause or a thread. */
static uint64_t lived_since(const Track *track, uint64_t from, uint64_t paused) {
    const TrackRec *rec = track->rec;
    uint64_t birth = rec->lives[rec->life].birth_ns, before = rec->lives[!rec->life].birth_ns;
    uint64_t ended = before + rec->lives[rec->life].self_before - rec->lives[!rec->life].self_before;
    if (before > from) return track->last > from + paused ? track->last - from - paused : 0; /* there may be more before these */
    uint64_t first = birth > from ? birth : from, second = before > from ? before : from;
    return (track->last > first ? track->last - first : 0) + (ended > second ? ended - second : 0);
}

/* What the track's nodes have in this row from after the last work. Of spans that were opened since, this is known; the rest is
 * the end's, the root's, ours, or that of spans still open. */
static void find_tails(Track *track, uint64_t end, uint64_t paused, Label *end_label) {
    uint64_t left = lived_since(track, end, paused);
    for (Node *node = track->nodes; node; node = node->next) {
        node->tail = 0;
        if (node->work != g.work || node->rec->self_ns <= node->self_at_work) continue;
        uint64_t known = node->rec->self_ns - node->self_at_work;
        left -= take_tail(node, known < left ? known : left);
    }
    for (Node *node = track->nodes; node; node = node->next)
        if (node->label == end_label) left -= take_tail(node, left);
    left -= take_tail(track->root, left);
    left -= take_tail(track->profiler, left);
    for (uint32_t d = track->depth; d-- > 0;) left -= take_tail(track->frames[d].node, left);
    for (int opened = 0; opened < 2; opened++)
        for (Node *node = track->nodes; node && left; node = node->next)
            if ((node->work == g.work) == opened) left -= take_tail(node, left);
}

/* The last row ends with the last work. What comes after it (files that close, results that are printed) is in no row. */
static void close_last(uint32_t due, Label *end_label) {
    Header *h = sh.head;
    uint64_t paused = h->paused_ns - g.work_paused_ns, at = h->last_work_ns;
    if (at + paused < h->iter_start_ns) return;
    for (uint32_t i = 0; i < g.track_count; i++) {
        Track *track = g.tracks[i];
        if (track->gen != g.gen) continue;
        if (!track->retired) touch_open(track);
        find_tails(track, at, paused, end_label);
    }
    put_row(g.unwritten + due, at + paused, 1);
    g.touched_count = g.unwritten = 0;
    g.iteration += due;
    g.row++;
    publish(&h->iterations, g.iteration);
}
#endif
