/* The shard: one file of this process, grown in 64 KiB blocks that are reserved on disk before they are mapped.
 *
 * What lives here: the file, its blocks, strings and fixed-width tables. Who may touch it: the interpreter lock's
 * holder. Invariant: an address handed out stays valid and backed by reserved disk until shard_close(), so a full disk
 * can refuse a block but never kill the process with SIGBUS. Without a file (path NULL, or the disk said no at the
 * start) the same blocks live in anonymous memory. */
#ifndef HL_SHARD_H
#define HL_SHARD_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "faults.h"
#include "layout.h"

#define MAX_BLOCKS_OF_KIND 4096

typedef struct {
    BlockHead **blocks;
    uint32_t count, room; /* blocks, and slots for their addresses */
    uint32_t items, per_block;
    BlockHead **old[16];
    uint32_t olds;
} Table;

static struct {
    char *base;
    size_t used, limit;
    uint64_t site, site_bytes; /* the last place kept, in the file */
    Header *head;
    Table tables[KINDS];
    char path[4096]; /* empty: in memory only */
} sh;

/* One aligned 8-byte store, not to be moved above the stores it publishes. */
FLATTEN void publish(uint64_t *word, uint64_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* Four buckets per octave from 16 ns on: a percentile is off by at most an eighth of itself. */
FLATTEN unsigned bucket_of(uint64_t dur) {
    if (dur < 16) return 0;
    unsigned octave = 63u - (unsigned)__builtin_clzll(dur);
    unsigned index = (octave - 4u) * 4u + (unsigned)((dur >> (octave - 2u)) & 3u);
    return index < HIST_BUCKETS ? index : HIST_BUCKETS - 1;
}
FLATTEN void lose(int why) { sh.head->losses[why]++; }

/* Reserve and map a stretch of the file; 0 or an errno. The file is opened for this alone: a descriptor kept open
 * could be closed by the program (daemons close them all) and its number then mean somebody else's file. */
static int map_from_disk(char *at, size_t offset, size_t bytes, int create) {
    int error, fd = open(sh.path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0644);
    if (fd < 0) return errno;
    do error = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
    while (error == EINTR);
    if (!error && mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset) == MAP_FAILED)
        error = errno;
    close(fd);
    return error;
}

/* Is there room for so much more, in our budget and on the disk? For what can be left out: spans come first. */
static int has_room(size_t bytes) {
    struct statvfs disk;
    struct rlimit file;
    if (sh.limit - sh.used < bytes) return 0;
    if (!sh.path[0]) return 1;
    return !statvfs(sh.path, &disk) && disk.f_bavail >= bytes / disk.f_frsize && !getrlimit(RLIMIT_FSIZE, &file) &&
           file.rlim_cur >= sh.used + bytes;
}

/* A new block of `units` x 64 KiB, zeroed; NULL when the budget or the disk is at its end (counted, never fatal). */
COLD static BlockHead *block_new(uint32_t kind, uint32_t units) {
    size_t bytes = (size_t)units * BLOCK_BYTES;
    Table *table = &sh.tables[kind];
    if (sh.used + bytes > sh.limit || table->count >= MAX_BLOCKS_OF_KIND) {
        if (sh.head) lose(LOSS_BUDGET);
        return NULL;
    }
    if (table->count == table->room) {
        uint32_t room = table->room ? table->room * 2 : 8;
        BlockHead **grown = malloc(room * sizeof *grown);
        if (!grown) return NULL;
        if (table->count) memcpy(grown, table->blocks, table->count * sizeof *grown);
        table->old[table->olds++] = table->blocks; /* the sampler may be reading it */
        table->blocks = grown;
        table->room = room;
    }
    char *at = sh.base + sh.used;
    int error = 0;
    if (sh.path[0]) error = map_from_disk(at, sh.used, bytes, kind == HEADER);
    else if (mprotect(at, bytes, PROT_READ | PROT_WRITE)) error = errno;
    if (error) {
        if (sh.head) {
            lose(LOSS_DISK);
            sh.head->disk_errno = (uint64_t)error;
        }
        errno = error;
        return NULL;
    }
    for (size_t i = 0; i < bytes; i += 4096) *(volatile char *)(at + i) = 0; /* fault the pages in here, not in a span */
    BlockHead *block = (BlockHead *)at;
    block->kind = kind;
    block->ordinal = table->count;
    block->units = units;
    block->item_words = ITEM_WORDS[kind];
    size_t room = bytes - sizeof *block;
    block->capacity = ITEM_WORDS[kind] ? room / (ITEM_WORDS[kind] * 8u) : room;
    publish(&block->magic, BLOCK_MAGIC);
    table->blocks[table->count++] = block;
    sh.used += bytes;
    return block;
}

/* The next item of a table, not yet published: fill it, then call item_publish(). */
static void *item_new(uint32_t kind, uint32_t *id) {
    Table *table = &sh.tables[kind];
    uint32_t within = table->per_block ? table->items % table->per_block : 0;
    if (within == 0) {
        BlockHead *block = block_new(kind, 1);
        if (!block) return NULL;
        table->per_block = (uint32_t)block->capacity;
    }
    *id = table->items;
    return (char *)(table->blocks[table->count - 1] + 1) + (size_t)within * ITEM_WORDS[kind] * 8u;
}

static void item_publish(uint32_t kind) {
    Table *table = &sh.tables[kind];
    BlockHead *block = table->blocks[table->count - 1];
    table->items++;
    publish(&block->used, block->used + 1);
}

/* Keep a string; answers its offset in the file, or 0 when there is no room. */
static uint64_t string_keep(const char *text, size_t bytes) {
    Table *table = &sh.tables[STRINGS];
    BlockHead *block = table->count ? table->blocks[table->count - 1] : NULL;
    if (!block || block->capacity - block->used < bytes) {
        size_t units = (bytes + sizeof *block + BLOCK_BYTES - 1) / BLOCK_BYTES;
        if (units > 0xffff || !(block = block_new(STRINGS, (uint32_t)units))) return 0;
    }
    char *at = (char *)(block + 1) + block->used;
    memcpy(at, text, bytes);
    publish(&block->used, block->used + bytes);
    return (uint64_t)(at - sh.base);
}

static void shard_close(void) {
    if (sh.base) munmap(sh.base, sh.limit);
    for (int i = 0; i < KINDS; i++) {
        free(sh.tables[i].blocks);
        for (uint32_t k = 0; k < sh.tables[i].olds; k++) free(sh.tables[i].old[k]);
    }
    memset(&sh, 0, sizeof sh);
}

/* Open a shard of at most `limit` bytes; 0 or an errno. On any trouble with the file it goes on in memory; only a lack
 * of memory itself fails. `*disk_error` tells which of the two it is. */
static int shard_open(const char *path, size_t limit, int *disk_error) {
    *disk_error = 0;
    sh.limit = (limit + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    sh.base = mmap(NULL, sh.limit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sh.base == MAP_FAILED) {
        sh.base = NULL;
        return errno;
    }
    if (path && strlen(path) < sizeof sh.path) {
        strcpy(sh.path, path);
        if (!(sh.head = (Header *)block_new(HEADER, 1))) {
            *disk_error = errno;
            if (errno != EEXIST) unlink(path);
            sh.path[0] = 0;
        }
    } else if (path) {
        *disk_error = ENAMETOOLONG;
    }
    if (!sh.head && !(sh.head = (Header *)block_new(HEADER, 1))) {
        int error = errno ? errno : ENOMEM;
        shard_close();
        return error;
    }
    if (*disk_error) {
        lose(LOSS_DISK);
        sh.head->disk_errno = (uint64_t)*disk_error;
    }
    return 0;
}
#endif
