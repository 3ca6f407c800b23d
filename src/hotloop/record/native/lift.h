/* Lifting open spans off a thread's stack and putting them back: generators and asyncio tasks.
 *
 * What lives here: the token that holds lifted spans. A generator's spans stop their clocks while lifted (`running` 0);
 * a task's go on (an awaited span is open), and are listed in the header so that a crash shows them.
 * Invariant: a lifted span is on no stack, and a token is spent by the first lower(). */
#ifndef HL_LIFT_H
#define HL_LIFT_H

#include "hot.h"

typedef struct {
    PyObject_HEAD
    Track *track;
    uint64_t gen, lifts;
    uint32_t count;
    int running;
    Frame *frames;
    uint16_t *slots; /* where each running one stands in the header, plus one */
} Token;

static PyTypeObject Token_Type;

static uint16_t suspended_put(uint32_t path, uint64_t start) {
    for (uint32_t tries = 0; tries < SUSPENDED_SLOTS; tries++) {
        uint32_t i = (g.suspended_hint + tries) % SUSPENDED_SLOTS;
        SuspendedRec *rec = &sh.head->suspended[i];
        if (rec->path_plus_one) continue;
        rec->start_ns = start;
        publish(&rec->path_plus_one, path + 1u);
        g.suspended_hint = i + 1;
        return (uint16_t)(i + 1);
    }
    return 0;
}

static int token_valid(const Token *token) {
    return token->count && page->gen == token->gen && token->lifts == g.lifts;
}

/* Take the spans above `depth` off this thread's stack; NULL without an error when there are none. */
static Token *lift(uint32_t depth, int running) {
    Track *track = self;
    if (track->gen != page->gen || track->depth <= depth) return NULL;
    uint32_t count = track->depth - depth;
    Token *token = PyObject_New(Token, &Token_Type);
    if (!token) {
        PyErr_Clear();
        return NULL;
    }
    *token = (Token){.ob_base = token->ob_base, .track = track, .gen = track->gen, .lifts = g.lifts, .running = running};
    token->frames = malloc(count * (sizeof(Frame) + sizeof(uint16_t)));
    if (!token->frames) {
        Py_DECREF(token);
        return NULL;
    }
    token->slots = (uint16_t *)(token->frames + count);
    token->count = count;
    memcpy(token->frames, track->frames + depth, count * sizeof(Frame));
    uint64_t at = now();
    settle(track, at);
    for (uint32_t i = count; i-- > 0;) {
        Frame *frame = &token->frames[i];
        touch(frame->node);
        track->misplaced -= (frame->flags & FRAME_MISPLACED) != 0;
        token->slots[i] = 0;
        if (running) {
            token->slots[i] = suspended_put(frame->node->path, frame->start);
            continue;
        }
        uint64_t from = frame->flags & FRAME_RESUMED ? frame->resumed : frame->start;
        put_event(track, frame->node, from, at - from, EVENT_SEGMENT);
        frame->start = at - frame->start; /* until it goes on: how long it has run */
        if (!(frame->flags & FRAME_REENTRY)) label_closed(frame->node->label, at);
    }
    sh.head->lifted += count;
    track->depth = depth;
    track->top = track->frames[depth].below;
    track->state -= 2ull * count;
    publish(&track->rec->state, track->state);
    return token;
}

/* Put lifted spans back on the stack of the thread that runs now. */
static void lower(Token *token) {
    Track *track = self;
    if (track->gen != page->gen && !(track = wake())) return;
    uint32_t count = token->count;
    if (!token_valid(token)) {
        track->inherited += count; /* their recording is over; their exits are still to come */
        token->count = 0;
        return;
    }
    while (track->depth + count > track->room)
        if (frames_grow(track)) return;
    uint64_t at = now();
    settle(track, at);
    for (uint32_t i = 0; i < count; i++) {
        Frame *frame = &track->frames[track->depth];
        *frame = token->frames[i];
        if (track != token->track) {
            Node *node = node_by_path(track, frame->node->path, frame->node->label);
            if (node) frame->node = node;
        }
        frame->below = track->top;
        frame->flags &= ~(uint32_t)FRAME_MISPLACED;
        if (track->depth && frame->node->parent != frame->below) frame->flags |= FRAME_MISPLACED;
        track->misplaced += (frame->flags & FRAME_MISPLACED) != 0;
        if (token->running) {
            if (token->slots[i]) publish(&sh.head->suspended[token->slots[i] - 1].path_plus_one, 0);
        } else {
            frame->start = at - frame->start;
            frame->resumed = at;
            frame->flags |= FRAME_RESUMED;
            if (!(frame->flags & FRAME_REENTRY)) label_opened(frame->node->label, at);
        }
        if (track->depth < TRACK_FRAMES) {
            track->rec->frames[track->depth].node = frame->node->id;
            track->rec->frames[track->depth].start_ns = frame->start;
        }
        track->top = frame->node;
        track->depth++;
    }
    track->state += 2ull * count;
    publish(&track->rec->state, track->state);
    sh.head->lifted -= count;
    token->count = 0;
}

/* The task or generator is gone: its spans end here, and say so. */
static void token_dealloc(Token *token) {
    if (token_valid(token) && self->gen == page->gen) {
        uint32_t depth = self->depth;
        lower(token);
        while (self->depth > depth) {
            close_top(self, now());
            lose(LOSS_ABANDONED);
        }
    }
    free(token->frames);
    PyObject_Free(token);
}

static PyTypeObject Token_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "hotloop.record._zone.Token",
    .tp_basicsize = sizeof(Token),
    .tp_dealloc = (destructor)token_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Spans lifted off a stack; give it to lower().",
};
#endif
