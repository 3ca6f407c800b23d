/* Whether a thread runs, is blocked, or waits for the interpreter: asked of the kernel, never of the thread.
 *
 * What lives here: the threads the sampler looks at, each with an open descriptor of /proc/self/task/TID/syscall. One read of
 * it answers "running", or the system call the thread is blocked in with its arguments: a futex inside the interpreter's lock
 * is a wait for the interpreter. A kept descriptor costs a fifth of opening the file each time. Where it cannot be read, the
 * thread's processor time since the last look decides; without that the state is unknown. Rejected: the processor time alone,
 * which says what a thread did since the last look and not what it does at the line it is seen at.
 *
 * Invariant: nothing here stops, signals or waits for a thread, and a descriptor that the program closed and took for itself
 * is neither believed nor closed. */
#ifndef HL_STATES_H
#define HL_STATES_H

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "frames.h"
#include "faults.h"
#include "layout.h"

#if HL_FRAMES
enum { MOST_WATCHED = 256, MOST_OPEN = 64, MOST_LINE = 200, NOT_OPEN = -1 };

typedef struct {
    uint64_t id; /* of the Python thread: numbers of the kernel are used again */
    pid_t tid;
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t looked; /* the look it was last seen in */
    uint64_t cpu_ns, used_ns; /* its processor time, and how much of it is new */
    uint32_t stack; /* + 1: what it was seen at; 0: nothing that could be used again */
    uint32_t line_bytes;
    char line[MOST_LINE]; /* what the kernel said when it was blocked */
} Watched;

static struct {
    Watched threads[MOST_WATCHED];
    uint32_t count, at, open, blind; /* blind: those without a descriptor */
    uint64_t wall_ns, since_ns, used_ns; /* since the last look: time, and processor time of all blind ones */
    const char *gil, *gil_end;
    int has_proc;
} st;

/* A thread's processor time: the kernel's clock of any thread of this process, 0 if it has none. */
static uint64_t thread_cpu_ns(pid_t tid) {
    struct timespec t;
    return clock_gettime((~(clockid_t)tid << 3) | 6, &t) ? 0 : (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int is_ours(const Watched *w) {
    struct stat now;
    return w->fd >= 0 && !fstat(w->fd, &now) && now.st_dev == w->device && now.st_ino == w->inode;
}

static void unwatch(Watched *w) {
    if (w->fd >= 0) st.open--;
    if (is_ours(w)) close(w->fd);
    w->fd = NOT_OPEN;
    w->stack = w->line_bytes = 0;
    w->cpu_ns = 0;
}

/* Also in a forked child, of what it inherited. */
static void states_end(void) {
    for (uint32_t i = 0; i < st.count && i < MOST_WATCHED; i++) unwatch(&st.threads[i]);
    st.count = st.open = 0;
}

static void states_start(PyInterpreterState *interpreter) {
    char self[24] = {0};
    memset(&st, 0, sizeof st);
    st.has_proc = readlink("/proc/self", self, sizeof self - 1) > 0 && atol(self) == (long)getpid(); /* else its numbers are not ours */
    gil_range(interpreter, &st.gil, &st.gil_end);
}

static void watch_open(Watched *w) {
    char name[48];
    struct stat made;
    if (!st.has_proc || st.open >= MOST_OPEN) return;
    snprintf(name, sizeof name, "/proc/self/task/%d/syscall", (int)w->tid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &made)) {
        close(fd);
        return;
    }
    w->fd = fd;
    w->device = made.st_dev;
    w->inode = made.st_ino;
    st.open++;
}

/* What we know of a thread; NULL if there are too many. Threads come in the same order look by look. */
static Watched *watch(uint64_t id, pid_t tid, uint64_t look) {
    if (tid <= 0) return NULL;
    for (uint32_t i = 0; i < st.count; i++, st.at++) {
        if (st.at >= st.count) st.at = 0;
        Watched *w = &st.threads[st.at];
        if (w->id != id || w->tid != tid) continue;
        w->looked = look;
        st.at++;
        return w;
    }
    if (st.count == MOST_WATCHED) return NULL;
    Watched *w = &st.threads[st.count++];
    *w = (Watched){.id = id, .tid = tid, .fd = NOT_OPEN, .looked = look, .used_ns = UINT64_MAX};
    watch_open(w);
    return w;
}

/* Before a look: of threads that have no descriptor, what they used since the last one. */
static void states_begin(void) {
    struct timespec t;
    st.at = 0;
    if (!st.blind) return;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t at = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    st.since_ns = st.wall_ns ? at - st.wall_ns : 0;
    st.wall_ns = at;
    st.used_ns = 0;
    for (uint32_t i = 0; i < st.count; i++) {
        Watched *w = &st.threads[i];
        if (w->fd >= 0) continue;
        uint64_t cpu_ns = thread_cpu_ns(w->tid);
        w->used_ns = w->cpu_ns && cpu_ns >= w->cpu_ns ? cpu_ns - w->cpu_ns : UINT64_MAX;
        w->cpu_ns = cpu_ns;
        if (w->used_ns != UINT64_MAX) st.used_ns += w->used_ns;
    }
}

/* After a look: threads that were not seen in it have ended. */
static void states_end_look(uint64_t look) {
    st.blind = 0;
    for (uint32_t i = 0; i < st.count;) {
        if (st.threads[i].looked == look) {
            st.blind += st.threads[i].fd < 0;
            i++;
        } else {
            unwatch(&st.threads[i]);
            st.threads[i] = st.threads[--st.count];
        }
    }
}

/* By processor time: it used half of what the others left of the time, and at least a twentieth. */
static uint32_t state_by_clock(const Watched *w) {
    if (w->used_ns == UINT64_MAX || !st.since_ns) return STATE_UNKNOWN;
    uint64_t others = st.used_ns - w->used_ns, left = st.since_ns > others ? st.since_ns - others : 0;
    return w->used_ns * 20 >= st.since_ns && w->used_ns * 2 >= left ? STATE_RUNNING : STATE_BLOCKED;
}

/* The system call a thread is blocked in, from "NUMBER 0xADDRESS ..."; -1 for none, -2 if that is not what it says. */
static long blocked_in(const char *line, const char *end, uint64_t *address) {
    long number = 0;
    *address = 0;
    if (end - line >= 3 && !memcmp(line, "-1 ", 3)) return -1;
    const char *at = line;
    for (; at < end && *at >= '0' && *at <= '9' && at - line < 6; at++) number = number * 10 + (*at - '0');
    if (at == line || end - at < 4 || memcmp(at, " 0x", 3)) return -2;
    for (at += 3; at < end && *at != ' '; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0) return -2;
        *address = *address << 4 | (uint64_t)digit;
    }
    return number;
}

/* What a thread does now. `same`: it has not run since the last look, so it is still where it was then. */
static uint32_t state_of(Watched *w, int *same) {
    char line[MOST_LINE];
    uint64_t address;
    *same = 0;
    if (!w) return STATE_UNKNOWN;
    if (w->fd < 0) return state_by_clock(w);
    ssize_t bytes = pread(w->fd, line, sizeof line, 0);
    if (bytes <= 0) { /* it has ended, or the descriptor is no longer ours */
        unwatch(w);
        return STATE_UNKNOWN;
    }
    if (bytes == 8 && !memcmp(line, "running\n", 8)) {
        w->stack = w->line_bytes = 0;
        return STATE_RUNNING;
    }
    long number = blocked_in(line, line + bytes, &address);
    if (number == -2) {
        unwatch(w);
        return STATE_UNKNOWN;
    }
    uint64_t cpu_ns = thread_cpu_ns(w->tid);
    *same = cpu_ns && cpu_ns == w->cpu_ns && w->line_bytes == (uint32_t)bytes && !memcmp(w->line, line, (size_t)bytes);
    if (!*same) {
        w->stack = 0;
        w->cpu_ns = cpu_ns;
        w->line_bytes = (uint32_t)bytes;
        memcpy(w->line, line, (size_t)bytes);
    }
    const char *word = (const char *)(uintptr_t)address;
    return number == SYS_futex && word >= st.gil && word < st.gil_end ? STATE_WANTS_GIL : STATE_BLOCKED;
}
#endif
#endif
