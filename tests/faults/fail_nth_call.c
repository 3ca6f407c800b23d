/* LD_PRELOAD: the Nth call that touches a path below FAIL_UNDER fails with FAIL_ERRNO. FAIL_LOG receives the count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int calls, owner;
static char ours[4096];

static int fails(void) {
    if (!owner) owner = getpid();
    if (getpid() != owner) return 0;
    const char *nth = getenv("FAIL_NTH"), *error = getenv("FAIL_ERRNO");
    calls++;
    if (nth && error && atoi(nth) == calls) {
        errno = atoi(error);
        return 1;
    }
    return 0;
}

static int below(const char *path) {
    const char *under = getenv("FAIL_UNDER");
    return under && path && strstr(path, under) != NULL;
}

__attribute__((destructor)) static void say(void) {
    const char *log = getenv("FAIL_LOG");
    FILE *file = log && getpid() == owner ? fopen(log, "w") : NULL;
    if (file) {
        fprintf(file, "%d", calls);
        fclose(file);
    }
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPEN(name)                                                   \
    int name(const char *path, int flags, ...) {                     \
        va_list list;                                                \
        va_start(list, flags);                                       \
        mode_t mode = va_arg(list, mode_t);                          \
        va_end(list);                                                \
        if (below(path) && fails()) return -1;                       \
        int fd = REAL(name)(path, flags, mode);                      \
        if (fd >= 0 && fd < (int)sizeof ours) ours[fd] = (char)below(path); \
        return fd;                                                   \
    }
OPEN(open)
OPEN(open64)

static int is_ours(int fd) { return fd >= 0 && fd < (int)sizeof ours && ours[fd]; }

int close(int fd) {
    if (fd >= 0 && fd < (int)sizeof ours) ours[fd] = 0;
    return REAL(close)(fd);
}
int mkdir(const char *path, mode_t mode) { return below(path) && fails() ? -1 : REAL(mkdir)(path, mode); }
int rename(const char *from, const char *to) { return below(to) && fails() ? -1 : REAL(rename)(from, to); }
int unlink(const char *path) { return below(path) && fails() ? -1 : REAL(unlink)(path); }
ssize_t write(int fd, const void *data, size_t n) { return is_ours(fd) && fails() ? -1 : REAL(write)(fd, data, n); }
int posix_fallocate(int fd, off_t at, off_t n) { return is_ours(fd) && fails() ? errno : REAL(posix_fallocate)(fd, at, n); }
int posix_fallocate64(int fd, off64_t at, off64_t n) { return is_ours(fd) && fails() ? errno : REAL(posix_fallocate64)(fd, at, n); }
void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) { return is_ours(fd) && fails() ? MAP_FAILED : REAL(mmap)(a, n, p, f, fd, o); }
void *mmap64(void *a, size_t n, int p, int f, int fd, off64_t o) { return is_ours(fd) && fails() ? MAP_FAILED : REAL(mmap64)(a, n, p, f, fd, o); }
