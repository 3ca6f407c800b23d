/* The stack sampler: which line every Python thread is at, and whether it runs (states.h), some hundred times a second.
 *
 * What lives here: a thread of our own that never takes the interpreter lock and never stops another thread. It copies what
 * it looks at with process_vm_readv on this very process, so a frame that vanishes under it gives an error, not a crash; a
 * torn stack is thrown away. Rejected: a Python thread, which only gets the lock where others release it (its samples pile
 * up on torch calls), and signals, which interrupt the program's system calls.
 *
 * Invariant: it writes only into blocks that were made for it before it started, and it ends before they are unmapped. */
#ifndef HL_SAMPLER_H
#define HL_SAMPLER_H

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include "frames.h"
#include "hot.h"
#include "states.h"

#if HL_FRAMES
enum { MOST_TABLE = 1 << 20, CHUNK = 1 << 15, VERIFY_EVERY = 16, MOST_TRIES = 4, MOST_PAUSES = 8, CROWDED_LOOKS = 32 };

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int running, stop;
    int alone, crowded; /* on the only core; for so many looks, as if we were: others have the cores */
    pid_t pid;
    uint64_t interval_ns, random;
    PyInterpreterState *interpreter;
    BlockHead *places, *stacks, *samples, *strings;
    Map place_ids, stack_ids, sample_ids, string_ids; /* numbers + 1; made large enough, so that looking allocates nothing */
    char *table; /* of one code object */
    uint64_t *place_marks; /* by place: what tells its code object from a later one at the same address */
    uint64_t looks;
    uint32_t weight; /* intervals a look stands for */
    int again; /* threads that may be looked at again in this look */
    char chunk[CHUNK]; /* the part of a thread's stack of frames that was copied whole */
    const char *chunk_at;
    size_t chunk_bytes;
    const IFrame *top; /* of the stack that was read last: its innermost frame, and the instruction that was at work */
    const char *top_instruction;
} sp;

/* ---- what was seen ---- */

/* The next item of one of our blocks, to be published by block_put(); NULL when it is full. */
static void *block_slot(BlockHead *block) {
    return block->used < block->capacity ? (char *)(block + 1) + block->used * block->item_words * 8u : NULL;
}
static uint32_t block_put(BlockHead *block) {
    publish(&block->used, block->used + 1);
    return (uint32_t)block->used - 1;
}

/* ---- reading memory that may vanish ---- */

static int peek(const void *from, void *into, size_t bytes) {
    struct iovec local = {into, bytes}, remote = {(void *)from, bytes};
    return process_vm_readv(sp.pid, &local, 1, &remote, 1, 0) == (ssize_t)bytes ? 0 : -1;
}

static uint64_t text_hash(const char *text, size_t bytes) {
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes; i++) h = (h ^ (uint8_t)text[i]) * 1099511628211u;
    return h;
}

/* Keep a Python string in our strings; the offset in the file, or 0. Strings that are not plain ASCII are read as UTF-8 if
 * Python has that at hand, else their characters beyond it become question marks. */
static uint64_t keep_text(PyObject *object, uint64_t *bytes) {
    PyASCIIObject head;
    char text[MOST_NAME];
    if (!object || peek(object, &head, sizeof head) || head.ob_base.ob_type != &PyUnicode_Type || !head.state.compact) return 0;
    if (head.length < 0) return 0;
    size_t length = head.length < MOST_NAME ? (size_t)head.length : MOST_NAME, width = head.state.kind;
    if (head.state.ascii) {
        if (peek((PyASCIIObject *)object + 1, text, length)) return 0;
    } else {
        char wide[MOST_NAME * 4];
        if (width != 1 && width != 2 && width != 4) return 0;
        if (peek((PyCompactUnicodeObject *)object + 1, wide, length * width)) return 0;
        for (size_t i = 0; i < length; i++) {
            uint32_t c = width == 1 ? (uint8_t)wide[i] : width == 2 ? ((uint16_t *)wide)[i] : ((uint32_t *)wide)[i];
            text[i] = c < 128 ? (char)c : '?';
        }
    }
    *bytes = length;
    Slot *seen = map_slot(&sp.string_ids, text_hash(text, length), length);
    if (!seen->value) {
        BlockHead *block = sp.strings;
        if (block->capacity - block->used < length || map_full(&sp.string_ids)) return 0;
        char *at = (char *)(block + 1) + block->used;
        memcpy(at, text, length);
        *seen = (Slot){text_hash(text, length), length, (uint32_t)block->used + 1};
        sp.string_ids.used++;
        publish(&block->used, block->used + length);
    }
    return (uint64_t)((char *)(sp.strings + 1) - sh.base) + seen->value - 1;
}

/* ---- from an instruction to a line ---- */

static const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, uint32_t *value) {
    uint32_t shift = 0, byte;
    *value = 0;
    do {
        if (at == end || shift > 30) return end;
        byte = *at++;
        *value |= (byte & 63) << shift;
        shift += 6;
    } while (byte & 64);
    return at;
}

/* Where an instruction stands, from a code object's table of locations: entries of (form, length, line delta, columns). */
static void locate(const uint8_t *at, const uint8_t *end, int line, int64_t offset, PlaceRec *place) {
    int64_t address = 0;
    while (at < end) {
        uint32_t form = *at >> 3 & 15, value, more[3] = {0}; /* lines further down, and both columns plus one */
        int64_t length = ((*at & 7) + 1) * 2;
        at++;
        if (form <= 9 && at < end) {
            more[1] = (form << 3 | *at >> 4) + 1;
            more[2] = more[1] + (*at++ & 15);
        } else if (form <= 12 && end - at >= 2) {
            line += (int)form - 10;
            more[1] = *at++ + 1u;
            more[2] = *at++ + 1u;
        } else if (form <= 14) {
            at = read_varint(at, end, &value);
            line += value & 1 ? -(int)(value >> 1) : (int)(value >> 1);
            for (int i = 0; form == 14 && i < 3; i++) at = read_varint(at, end, &more[i]);
        }
        if (offset < address + length) {
            if (form != 15 && line > 0) place->line = (uint32_t)line;
            if (more[0] <= 0x7fff && more[1] <= 0xffff && more[2] <= 0xffff) place->column = more[1], place->ends = more[0] << 16 | more[2];
            return;
        }
        address += length;
    }
}

/* The place of an instruction: its file, function and line; 0 when it cannot be told, else its number + 1. An address known
 * already is believed, but for every sixteenth look: a code object may be freed and another take its place. */
static uint32_t place_of(const PyCodeObject *code, const char *instruction) {
    Slot *seen = map_slot(&sp.place_ids, (uintptr_t)instruction, (uintptr_t)code);
    if (seen->value && sp.looks % VERIFY_EVERY) return (uint32_t)seen->value;
    PyCodeObject copy, *head = &copy;
    PyVarObject table;
    if (peek(code, &copy, offsetof(PyCodeObject, co_code_adaptive)) || head->ob_base.ob_base.ob_type != &PyCode_Type) return 0;
    uint64_t mark = (uint64_t)(uintptr_t)head->co_linetable ^ (uint64_t)head->co_firstlineno << 48;
    if (seen->value && sp.place_marks[seen->value - 1] == mark) return (uint32_t)seen->value;
    PlaceRec *place = block_slot(sp.places);
    if (!place || map_full(&sp.place_ids)) return 0;
    if (peek(head->co_linetable, &table, sizeof table) || table.ob_base.ob_type != &PyBytes_Type) return 0;
    if (table.ob_size < 0 || table.ob_size > MOST_TABLE) return 0;
    if (peek((char *)head->co_linetable + offsetof(PyBytesObject, ob_sval), sp.table, (size_t)table.ob_size)) return 0;
    int64_t offset = instruction - ((const char *)code + offsetof(PyCodeObject, co_code_adaptive));
    PlaceRec made = {.line = (uint32_t)head->co_firstlineno, .first_line = (uint32_t)head->co_firstlineno};
    locate((uint8_t *)sp.table, (uint8_t *)sp.table + table.ob_size, head->co_firstlineno, offset < 0 ? 0 : offset, &made);
    made.file = keep_text(head->co_filename, &made.file_bytes);
    made.function = keep_text(head->co_qualname, &made.function_bytes);
    if (!made.file || !made.function) return 0;
    *place = made;
    if (!seen->value) sp.place_ids.used++;
    *seen = (Slot){(uintptr_t)instruction, (uintptr_t)code, block_put(sp.places) + 1};
    sp.place_marks[seen->value - 1] = mark;
    return (uint32_t)seen->value;
}

/* ---- one look at one thread ---- */

/* Where a thread's frames begin, and most of them: they lie in one piece of memory, and both are copied by one call. */
static int read_top(const PyThreadState *thread, IFrame **at) {
    const char *base = (const char *)thread->datastack_chunk, *top = (const char *)thread->datastack_top;
    size_t bytes = base && top > base ? (size_t)(top - base) : 0, first = 0;
    if (bytes > CHUNK) base = top - CHUNK, bytes = CHUNK;
#if PY_VERSION_HEX >= 0x030d0000
    struct iovec local[2] = {{sp.chunk, bytes}}, remote[2] = {{(void *)base, bytes}};
    unsigned long pieces = bytes ? 1 : 0;
    *at = thread->current_frame;
#else
    _PyCFrame cframe;
    struct iovec local[2] = {{&cframe, sizeof cframe}, {sp.chunk, bytes}}, remote[2] = {{thread->cframe, sizeof cframe}, {(void *)base, bytes}};
    unsigned long pieces = bytes ? 2 : 1;
    first = sizeof cframe;
#endif
    ssize_t got = pieces ? process_vm_readv(sp.pid, local, pieces, remote, pieces, 0) : 0;
    sp.chunk_at = base;
    sp.chunk_bytes = got == (ssize_t)(first + bytes) ? bytes : 0;
#if PY_VERSION_HEX < 0x030d0000
    if (got < (ssize_t)first) return -1;
    *at = cframe.current_frame;
#endif
    return 0;
}

static int read_frame(const IFrame *at, IFrame *into) {
    size_t offset = (uintptr_t)at - (uintptr_t)sp.chunk_at; /* of anything: frames that change under us point anywhere */
    if (offset < sp.chunk_bytes && sp.chunk_bytes - offset >= IFRAME_BYTES) {
        memcpy(into, sp.chunk + offset, IFRAME_BYTES);
        return 0;
    }
    return peek(at, into, IFRAME_BYTES);
}

/* The frames of a thread from this one outwards; 0 when they changed under our eyes. */
static uint32_t read_stack(IFrame *at, const void **codes, const char **instructions) {
    IFrame frame;
    uint32_t depth = 0;
    for (uint32_t steps = 0; at && depth < DEEPEST && steps < 4 * DEEPEST; steps++) { /* what changes may go in circles */
        if (read_frame(at, &frame)) return 0;
#if PY_VERSION_HEX >= 0x030c0000
        if (frame.owner == FRAME_OWNED_BY_CSTACK) {
            at = frame.previous;
            continue;
        }
#endif
        if (!depth) sp.top = at, sp.top_instruction = FRAME_INSTR(&frame);
        codes[depth] = FRAME_CODE(&frame);
        instructions[depth++] = FRAME_INSTR(&frame);
        at = frame.previous;
    }
    return depth;
}

/* Where in the tree of spans a thread is: its track and path. */
static void whereabouts(unsigned long tid, uint32_t *track, uint32_t *path) {
    *track = UINT32_MAX;
    *path = 0;
    Table *tracks = &sh.tables[TRACKS], *nodes = &sh.tables[NODES];
    for (uint32_t i = 0; i < tracks->items && tracks->per_block; i++) {
        TrackRec *rec = (TrackRec *)(tracks->blocks[i / tracks->per_block] + 1) + i % tracks->per_block;
        if (rec->tid != tid || rec->alive != 1) continue;
        uint64_t depth = (rec->state & STATE_DEPTH_MASK) >> 1;
        uint64_t node = depth == 0 ? rec->base : depth <= TRACK_FRAMES ? rec->frames[depth - 1].node : rec->frames[TRACK_FRAMES - 1].node;
        *track = i;
        if (node < nodes->items && nodes->per_block)
            *path = ((NodeRec *)(nodes->blocks[node / nodes->per_block] + 1) + node % nodes->per_block)->path;
        return;
    }
}

static void lose_sample(void) { sh.head->sample_lost++; }

/* The stack a thread is at, its number + 1 (0 when there is none, or none to be had), and the span around it. Both are read
 * while the thread runs on: the span is asked right before and right after the innermost frames were copied, and where it
 * changed all is read anew. Without that, a tenth of the samples of spans of 60 us had a stack of the code beside them. */
static uint32_t stack_of(const PyThreadState *at, unsigned long tid, uint32_t *track, uint32_t *path) {
    const void *codes[DEEPEST];
    const char *instructions[DEEPEST];
    PyThreadState thread;
    IFrame *top;
    uint32_t stack = 0 /* + 1 */, before;
    whereabouts(tid, track, path);
    for (int i = 0; i < MOST_TRIES; i++) {
        before = *path;
        if (peek(at, &thread, sizeof thread) || read_top(&thread, &top)) return 0;
        whereabouts(tid, track, path);
        if (*path == before) break;
    }
    for (uint32_t i = read_stack(top, codes, instructions); i-- > 0;) {
        uint32_t place = place_of(codes[i], instructions[i]);
        if (!place) {
            lose_sample();
            return 0;
        }
        Slot *seen = map_slot(&sp.stack_ids, stack, place);
        if (!seen->value) {
            StackRec *rec = block_slot(sp.stacks);
            if (!rec) {
                lose_sample();
                return 0;
            }
            *rec = (StackRec){stack, place - 1};
            *seen = (Slot){stack, place, block_put(sp.stacks) + 1};
        }
        stack = (uint32_t)seen->value;
    }
    return stack;
}

/* Let LASTS_NS go by. Sleeping takes two or three times as long, until a core is had again, and calls end meanwhile; where
 * every core is busy, the other thread needs ours. */
static void pause_a_moment(void) {
    struct timespec begin, now, pause = {0, LASTS_NS};
    if (sp.alone || sp.crowded) {
        nanosleep(&pause, NULL);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < (int64_t)LASTS_NS);
}

/* Does the call go on that a running thread was found in? It is looked at again until it has had twice LASTS_NS of a core. Of
 * short calls in a loop, one like the first may be met again: those of tensors give the interpreter away and take it back, which
 * tells them apart. Time counts by the thread's own clock: where others have the cores, it is where it was whatever it does.
 * Then the next looks sleep in between, or the core we spin on would be the one it waits for. */
static uint32_t call_of(const PyThreadState *at, pid_t tid, int holds_gil) {
    uint64_t begin = thread_cpu_ns(tid);
    sp.crowded -= sp.crowded > 0;
    for (int i = 1; i <= MOST_PAUSES; i++) {
        PyThreadState now;
        IFrame frame, *top;
        pause_a_moment();
        if (peek(at, &now, sizeof now) || read_top(&now, &top) || !top || read_frame(top, &frame)) return 0;
#if PY_VERSION_HEX >= 0x030c0000
        if (frame.owner == FRAME_OWNED_BY_CSTACK) top = frame.previous;
        if (!top || read_frame(top, &frame)) return 0;
#endif
        uint64_t used = thread_cpu_ns(tid) - begin;
        if (used * 2 < LASTS_NS * (uint64_t)i) sp.crowded = CROWDED_LOOKS;
        if (top != sp.top || FRAME_INSTR(&frame) != sp.top_instruction || (gil_holder(sp.interpreter) == at) != holds_gil)
            return !used || used > 8 * LASTS_NS ? 0 : CALL_SHORT; /* too late to tell */
        if (used >= 2 * LASTS_NS) return CALL_LASTING;
    }
    return 0; /* it did not run, or has no clock */
}

/* What it does is asked first, its stack read at once after that. A thread that has not run since the last look is where it
 * was: nothing is read again, which pays for the asking. */
static void sample_thread(const PyThreadState *thread, const PyThreadState *at) {
    Watched *watched = watch(thread->id, (pid_t)thread->native_thread_id, sp.looks);
    int same;
    uint32_t track, path, state = state_of(watched, &same);
    uint32_t stack = same ? watched->stack : 0;
    if (stack) whereabouts(thread->native_thread_id, &track, &path);
    else stack = stack_of(at, thread->native_thread_id, &track, &path);
    if (watched) watched->stack = stack;
    if (!stack) return;
    int holds_gil = gil_holder(sp.interpreter) == at;
    if (state == STATE_RUNNING && sp.looks % 2 && sp.again-- > 0) path |= call_of(at, (pid_t)thread->native_thread_id, holds_gil) << SAMPLE_CALL_SHIFT;
    path |= state << SAMPLE_STATE_SHIFT;
    if (holds_gil) path |= SAMPLE_HOLDS_GIL;
    if (!g.in_loop) path |= SAMPLE_EARLY;
    Slot *seen = map_slot(&sp.sample_ids, (uint64_t)stack << 32 | path, track);
    if (!seen->value) {
        SampleRec *rec = block_slot(sp.samples);
        if (!rec) {
            lose_sample();
            return;
        }
        *rec = (SampleRec){stack - 1, path, track, 0};
        *seen = (Slot){(uint64_t)stack << 32 | path, track, block_put(sp.samples) + 1};
    }
    ((SampleRec *)(sp.samples + 1))[seen->value - 1].count += sp.weight;
}

static void sample_all(void) {
    PyThreadState thread, *at = PyInterpreterState_ThreadHead(sp.interpreter);
    sp.looks++;
    sp.again = 2;
    states_begin();
    for (int i = 0; at && i < MOST_WATCHED; i++) {
        if (peek(at, &thread, sizeof thread)) return;
        sample_thread(&thread, at);
        at = thread.next;
    }
    states_end_look(sp.looks);
    sh.head->sample_ticks += sp.weight;
    if (sp.looks % SLOWER_EVERY == 0 && sp.weight < SLOWEST) sp.weight *= 2; /* a long run needs no more samples, only later ones */
}

/* ---- its life ---- */

/* The interval varies by half each way, so that it never runs in step with the loop it looks at. */
static uint64_t next_interval(void) {
    sp.random = sp.random * 6364136223846793005u + 1442695040888963407u;
    uint64_t interval = sp.interval_ns * sp.weight;
    return interval / 2 + (sp.random >> 33) * interval / (1ull << 31);
}

static void *sampler_main(void *unused) {
    struct timespec due;
    prctl(PR_SET_TIMERSLACK, 1000); /* of this thread: its short pauses stay short */
    clock_gettime(CLOCK_MONOTONIC, &due);
    pthread_mutex_lock(&sp.mutex);
    while (!sp.stop) {
        uint64_t ns = (uint64_t)due.tv_nsec + next_interval();
        due.tv_sec += (time_t)(ns / 1000000000u);
        due.tv_nsec = (long)(ns % 1000000000u);
        int waited = 0;
        while (!sp.stop && !waited) waited = pthread_cond_timedwait(&sp.wake, &sp.mutex, &due);
        if (sp.stop) break;
        if (page->gen) sample_all();
        clock_gettime(CLOCK_MONOTONIC, &due); /* late ones are left out, not made up for */
        if (page->gen) sh.head->seen_ns = (uint64_t)due.tv_sec * 1000000000u + (uint64_t)due.tv_nsec;
    }
    pthread_mutex_unlock(&sp.mutex);
    return NULL;
}

static void sampler_free(void) {
    states_end();
    free(sp.place_ids.slots);
    free(sp.stack_ids.slots);
    free(sp.sample_ids.slots);
    free(sp.string_ids.slots);
    free(sp.table);
    free(sp.place_marks);
}

COLD static void sampler_start(void) {
    uint64_t us = g.conf.sample_us[g.conf.is_child];
    uint32_t scale = g.conf.is_child ? 1 : 6, strings = g.conf.is_child ? 1 : 3;
    size_t need = (size_t)(3 * scale + strings + 1) * BLOCK_BYTES;
    char probe;
    states_end(); /* a forked child has the descriptors of its parent's, */
    memset(&sp, 0, sizeof sp); /* and no sampler yet */
    sp.pid = getpid();
    sp.alone = sysconf(_SC_NPROCESSORS_ONLN) < 2;
    if (!us || ck.kind == CLOCK_TEST || peek(&us, &probe, 1)) return;
    if (!has_room(4 * need)) return; /* spans come first */
    sp.interval_ns = us * 1000;
    sp.weight = 1;
    sp.random = sh.head->shard_id;
    sp.interpreter = PyInterpreterState_Get();
    states_start(sp.interpreter);
    /* in this order: who copies the file from its beginning while it grows finds whatever a sample refers to */
    sp.samples = block_new(SAMPLES, scale);
    sp.stacks = block_new(STACKS, scale);
    sp.places = block_new(PLACES, scale);
    sp.strings = block_new(STRINGS, strings);
    sp.table = malloc(MOST_TABLE);
    sp.place_marks = sp.places ? calloc(sp.places->capacity, sizeof *sp.place_marks) : NULL;
    if (!sp.place_marks || !sp.places || !sp.stacks || !sp.samples || !sp.strings || !sp.table || map_start(&sp.place_ids, sp.places->capacity) ||
        map_start(&sp.stack_ids, sp.stacks->capacity) || map_start(&sp.sample_ids, sp.samples->capacity) ||
        map_start(&sp.string_ids, 4096)) {
        sampler_free();
        return;
    }
    block_new(STRINGS, 1); /* the next names go here: the sampler's block is its own */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sp.wake, &attributes);
    pthread_mutex_init(&sp.mutex, NULL);
    sh.head->sample_ns = sp.interval_ns;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    sp.running = !pthread_create(&sp.thread, NULL, sampler_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!sp.running) sampler_free();
}

/* While it is held no sample is half written: for a copy of the shard. */
static void sampler_hold(int hold) {
    if (!sp.running || sp.pid != getpid()) return;
    if (hold) pthread_mutex_lock(&sp.mutex);
    else pthread_mutex_unlock(&sp.mutex);
}

static void sampler_stop(void) {
    if (!sp.running || sp.pid != getpid()) return;
    pthread_mutex_lock(&sp.mutex);
    sp.stop = 1;
    pthread_cond_signal(&sp.wake);
    pthread_mutex_unlock(&sp.mutex);
    pthread_join(sp.thread, NULL);
    sampler_free();
    sp.running = 0;
}
#else
static void sampler_start(void) {}
static void sampler_stop(void) {}
static void sampler_hold(int hold) { (void)hold; }
#endif
#endif
