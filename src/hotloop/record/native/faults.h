/* How functions are compiled; and for benchmarks/native_checks.py alone: the Nth allocation or system call of the recorder fails.
 *
 * What lives here: stand-ins for the calls that can fail, compiled in only with -DHOTLOOP_CHECKS. `fail_nth(n)` arms them, so
 * a test can walk through every one of them. */
#ifndef HL_FAULTS_H
#define HL_FAULTS_H
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))
#ifndef HOTLOOP_CHECKS
#define FLATTEN static inline __attribute__((always_inline))
#else
#define FLATTEN static __attribute__((noinline)) /* count every branch once */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long faults_left, fault_calls;

static int fault(void) {
    fault_calls++;
    if (!faults_left || --faults_left) return 0;
    errno = ENOMEM;
    return 1;
}

#define malloc(...) (fault() ? NULL : (malloc)(__VA_ARGS__))
#define calloc(...) (fault() ? NULL : (calloc)(__VA_ARGS__))
#define realloc(...) (fault() ? NULL : (realloc)(__VA_ARGS__))
#define mmap(...) (fault() ? MAP_FAILED : (mmap)(__VA_ARGS__))
#define mprotect(...) (fault() ? -1 : (mprotect)(__VA_ARGS__))
#define posix_fallocate(...) (fault() ? EINTR : (posix_fallocate)(__VA_ARGS__))
#define open(...) (fault() ? -1 : (open)(__VA_ARGS__))
#define read(...) (fault() ? -1 : (read)(__VA_ARGS__))

void __gcov_dump(void) __attribute__((weak));

#endif
#endif
