/* Time: CLOCK_MONOTONIC nanoseconds, read through the time-stamp counter where the kernel itself trusts it.
 *
 * What lives here: now(), and the calibration behind it. Invariant: within a process now() never goes back. It is called
 * with the interpreter lock held, so one variable keeps that order across threads, and unions stay exact.
 *
 * Why: clock_gettime costs 24 ns here, rdtsc 10. The counter is tied to the kernel's clock anew every second, so that
 * the times of different processes agree to about a microsecond however long the run is. */
#ifndef HL_CLOCK_H
#define HL_CLOCK_H

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "faults.h"
#include "layout.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif


static struct {
    uint64_t base_tick, base_ns, mult, next_tick; /* ns = base_ns + (tick - base_tick) * mult >> 32 */
    uint64_t last_ns;                             /* the largest value given out */
    uint64_t first_tick, first_ns, ticks_per_second;
    uint64_t steps, backs;
    int kind;
    uint64_t test_ns, test_tick; /* a test's time, and by how much each reading moves it */
} ck;

static uint64_t kernel_ns(clockid_t id) {
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

#if defined(__x86_64__)
/* A counter reading and the kernel's time of the same moment: the tightest of a few brackets. */
static void read_both(uint64_t *tick, uint64_t *ns) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = __rdtsc(), at = kernel_ns(CLOCK_MONOTONIC), after = __rdtsc();
        if (after - before < best) {
            best = after - before;
            *tick = before + (after - before) / 2;
            *ns = at;
        }
    }
}

/* The counter must tick at one rate in all power states, and the kernel must keep its own time by it. */
static int counter_usable(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d & (1u << 8))) return 0;
    char source[16] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, source, sizeof source - 1);
    close(fd);
    return n >= 3 && (!strncmp(source, "tsc", 3) || !strncmp(source, "kvm-clock", 9));
}

/* From `tick` on, which is `ns`, time runs at `rate` nanoseconds a tick. */
static void counter_tie(uint64_t tick, uint64_t ns, double rate, uint64_t for_ticks) {
    ck.mult = (uint64_t)(rate * 4294967296.0);
    uint64_t margin = ck.ticks_per_second / 1000; /* another core's counter may lag: keep the difference positive */
    ck.base_tick = tick - margin;
    ck.base_ns = ns - (uint64_t)(((unsigned __int128)margin * ck.mult) >> 32);
    ck.next_tick = tick + for_ticks;
}

static void counter_start(void) {
    uint64_t tick, ns;
    if (ck.first_tick == 0) read_both(&ck.first_tick, &ck.first_ns);
    do read_both(&tick, &ns);
    while (ns - ck.first_ns < 2000000u); /* 2 ms: about 10 ppm at first, better with every second that passes */
    double rate = (double)(ns - ck.first_ns) / (double)(tick - ck.first_tick);
    ck.ticks_per_second = (uint64_t)(1e9 / rate);
    counter_tie(tick, ns, rate, ck.ticks_per_second / 16);
}

/* Tie the counter to the kernel's clock again. Small differences are worked off over the next second; a jump (a
 * suspended machine, a migrated one) is taken at once when it goes forward, held when it goes back, and counted. */
COLD static uint64_t counter_resync(void) {
    uint64_t tick, ns;
    read_both(&tick, &ns);
    uint64_t ours = ck.base_ns + (uint64_t)(((unsigned __int128)(tick - ck.base_tick) * ck.mult) >> 32);
    double rate = (double)(ns - ck.first_ns) / (double)(tick - ck.first_tick);
    int64_t ahead = (int64_t)(ours - ns);
    if (ahead > 1000000 || ahead < -1000000) {
        ck.steps++;
        ck.first_tick = tick;
        ck.first_ns = ns;
        rate = (double)ck.mult / 4294967296.0;
        if (ahead < 0) ours = ns;
        ahead = 0;
    }
    counter_tie(tick, ours, rate - (double)ahead / (double)ck.ticks_per_second, ck.ticks_per_second);
    return ours;
}
#endif

static void clock_start(int want) {
    ck.kind = CLOCK_KERNEL;
    ck.steps = ck.backs = ck.last_ns = 0;
    if (want == CLOCK_TEST) {
        ck.kind = CLOCK_TEST;
        return;
    }
#if defined(__x86_64__)
    if (want != CLOCK_KERNEL && counter_usable()) {
        counter_start();
        ck.kind = CLOCK_COUNTER;
    }
#endif
}

COLD static uint64_t now_slow(void) {
    uint64_t ns = ck.kind == CLOCK_TEST ? (ck.test_ns += ck.test_tick) : kernel_ns(CLOCK_MONOTONIC);
    if (ns < ck.last_ns) {
        ck.backs++;
        return ck.last_ns;
    }
    return ck.last_ns = ns;
}

FLATTEN uint64_t now(void) {
#if defined(__x86_64__)
    if (LIKELY(ck.kind == CLOCK_COUNTER)) {
        uint64_t tick = __rdtsc();
        uint64_t ns = ck.base_ns + (uint64_t)(((unsigned __int128)(tick - ck.base_tick) * ck.mult) >> 32);
        if (UNLIKELY(tick > ck.next_tick)) ns = counter_resync();
        if (UNLIKELY(ns < ck.last_ns)) {
            ck.backs++;
            return ck.last_ns;
        }
        return ck.last_ns = ns;
    }
#endif
    return now_slow();
}
#endif
