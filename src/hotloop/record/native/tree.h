/* Labels, paths and nodes: who calls whom, and where each one's numbers live.
 *
 * A label is a name. A path is a label below a parent path, shared by all threads of the process. A node is a path on
 * one track and owns the mapped statistics. What lives here: their creation and look-up; all of it is the slow path.
 *
 * Invariant: every structure here dies with the shard (tree_forget), and zones keep no pointer past that. */
#ifndef HL_TREE_H
#define HL_TREE_H

#include <Python.h>
#include "clock.h"
#include "shard.h"

struct Zone;

typedef struct Label {
    LabelRec *rec;
    struct Zone *zone;
    uint32_t id, open; /* open: spans of this label open now, over all tracks (recursion counts once) */
} Label;

enum { SLOW_LONG = 1, SLOW_OVERFLOW = 2 };

typedef struct Node {
    NodeRec *rec;
    Label *label;
    struct Node *parent, *next; /* next: of the same track */
    uint32_t id, path, slow;
    uint32_t marked_in; /* row + 1 in which it was put on the list of touched nodes */
    uint64_t self_at_step, count_at_step;
    uint64_t work, self_at_work, count_at_work; /* when it was first opened after the latest work: which that was, its numbers then */
    uint64_t tail;                              /* see find_tails() */
    uint64_t measured;                          /* when a span of it was measured last */
} Node;

/* One half of a zone: what `__enter__` and `__exit__` hand to the interpreter, made once per zone (no bound method). */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    struct Zone *zone;
} Half;

/* The object behind profile("name"). It holds no state of any span, so one serves all threads and all depths. */
typedef struct Zone {
    PyObject_HEAD
    PyObject *name;
    Half *enter, *exit;
    Label *label;                /* of the current shard */
    Node *hit_parent, *hit_node; /* the last answer of find_child */
    uint32_t check, checked;     /* look at the calling frame when `check` gets to 0 */
    PyObject *checked_code;
    PyObject *site; /* file:line where it is first opened, or where its function begins */
    uint32_t kind, phase, owns; /* owns: its own time is work, also where it has parts */
    uint32_t marks;             /* its edges are told, see tell_edge() */
} Zone;

/* Twice the room for an array, at first for 64; -1 when there is no memory, and then all is as it was. */
static int grow(void **array, uint32_t *room, size_t item) {
    uint32_t more = *room ? *room * 2 : 64;
    void *grown = realloc(*array, more * item);
    if (!grown) return -1;
    *array = grown;
    *room = more;
    return 0;
}

/* Open-addressed map from a pair of words to another that is not 0. */
typedef struct { uint64_t a, b, value; } Slot;
typedef struct { Slot *slots; uint32_t room, used; } Map;

/* The slot of a pair, or the empty one it would take. */
static Slot *map_slot(const Map *map, uint64_t a, uint64_t b) {
    uint64_t h = (a * 0x9E3779B97F4A7C15u) ^ (b * 0xC2B2AE3D27D4EB4Fu);
    for (uint32_t i = (uint32_t)(h >> 32) & (map->room - 1);; i = (i + 1) & (map->room - 1)) {
        Slot *slot = &map->slots[i];
        if (!slot->value || (slot->a == a && slot->b == b)) return slot;
    }
}

static uint64_t map_get(const Map *map, uint64_t a, uint64_t b) { return map->room ? map_slot(map, a, b)->value : 0; }

static int map_full(const Map *map) { return (map->used + 1) * 4 > map->room * 3; }

/* Room for so many that it never is full. */
static int map_start(Map *map, uint64_t items) {
    uint32_t room = 64;
    while (room < items * 2) room *= 2;
    *map = (Map){calloc(room, sizeof(Slot)), room, 0};
    return map->slots ? 0 : -1;
}

static int map_put(Map *map, uint64_t a, uint64_t b, uint64_t value) {
    if (map_full(map)) {
        Map grown = {calloc(map->room ? map->room * 2 : 16, sizeof(Slot)), map->room ? map->room * 2 : 16, 0};
        if (!grown.slots) return -1;
        for (uint32_t i = 0; i < map->room; i++)
            if (map->slots[i].value) map_put(&grown, map->slots[i].a, map->slots[i].b, map->slots[i].value);
        free(map->slots);
        *map = grown;
    }
    *map_slot(map, a, b) = (Slot){a, b, value};
    map->used++;
    return 0;
}

static void map_free(Map *map) {
    free(map->slots);
    *map = (Map){0};
}

/* Small objects that all die together. */
typedef struct Chunk { struct Chunk *next; size_t used; char data[65536 - 16]; } Chunk;

static struct {
    Chunk *chunks;
    Map paths;  /* (parent path, label) -> path + 1; remote ones under (origin path | 1 << 63, origin shard) */
    Zone **zones;
    uint32_t zone_count, zone_room;
} tr;

static void *arena_get(size_t bytes) {
    bytes = (bytes + 15) & ~(size_t)15;
    if (!tr.chunks || tr.chunks->used + bytes > sizeof tr.chunks->data) {
        Chunk *chunk = malloc(sizeof *chunk);
        if (!chunk) return NULL;
        chunk->next = tr.chunks;
        chunk->used = 0;
        tr.chunks = chunk;
    }
    void *at = tr.chunks->data + tr.chunks->used;
    tr.chunks->used += bytes;
    return memset(at, 0, bytes);
}

static void tree_forget(int release) {
    for (uint32_t i = 0; i < tr.zone_count; i++) {
        tr.zones[i]->label = NULL;
        tr.zones[i]->hit_parent = tr.zones[i]->hit_node = NULL;
    }
    if (release) {
        while (tr.chunks) {
            Chunk *next = tr.chunks->next;
            free(tr.chunks);
            tr.chunks = next;
        }
        map_free(&tr.paths);
    }
    tr.chunks = NULL;
    tr.paths = (Map){0};
}

static Zone *reserved_zones[Z_RESERVED];

/* Keep where a label comes from. Labels made in a loop come from one place, so the last one is remembered. */
COLD static void label_place(Zone *zone) {
    Label *label = zone->label;
    if (!zone->site || !label || label->zone != zone || label->rec->site) return;
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(zone->site, &bytes);
    if (!text) {
        PyErr_Clear();
        return;
    }
    if (!sh.site || sh.site_bytes != (uint64_t)bytes || memcmp(sh.base + sh.site, text, (size_t)bytes)) {
        sh.site = string_keep(text, (size_t)bytes);
        sh.site_bytes = sh.site ? (uint64_t)bytes : 0;
    }
    label->rec->site_bytes = sh.site_bytes;
    publish(&label->rec->site, sh.site);
}

/* The label of a zone in this shard; the one for "(more labels)" when there is no room for another name. */
COLD static Label *label_of(Zone *zone) {
    if (zone->label) return zone->label;
    uint32_t id;
    Label *label = NULL;
    if (sh.tables[LABELS].items < MAX_LABELS) {
        PyObject *bytes = PyUnicode_AsEncodedString(zone->name, "utf-8", "surrogatepass");
        if (!bytes) PyErr_Clear();
        const char *text = bytes ? PyBytes_AS_STRING(bytes) : "?";
        size_t size = bytes ? (size_t)PyBytes_GET_SIZE(bytes) : 1;
        uint64_t offset = string_keep(text, size);
        if (!offset && size > 1024) offset = string_keep(text, size = 1024); /* a huge name: keep its head */
        LabelRec *rec = offset ? item_new(LABELS, &id) : NULL;
        if (rec && (label = arena_get(sizeof *label))) {
            *rec = (LabelRec){.offset = offset, .bytes = size, .kind = zone->kind,
                              .flags = zone->phase << FLAG_PHASE_SHIFT | (zone->owns ? FLAG_OWNS : 0)};
            item_publish(LABELS);
            *label = (Label){.rec = rec, .zone = zone, .id = id};
        }
        Py_XDECREF(bytes);
    }
    if (!label) label = reserved_zones[Z_OVERFLOW]->label;
    zone->label = label;
    label_place(zone);
    return label;
}

/* The path known by two numbers, or a new one, or -1. */
static int64_t path_by(uint64_t one, uint64_t two, PathRec made) {
    uint64_t known = map_get(&tr.paths, one, two);
    if (known) return (int64_t)known - 1;
    uint32_t id;
    PathRec *rec = item_new(PATHS, &id);
    if (!rec) return -1;
    *rec = made;
    item_publish(PATHS);
    map_put(&tr.paths, one, two, id + 1ull);
    return id;
}

/* The path of `label` below `parent`, or -1. */
static int64_t path_of(uint32_t parent, Label *label) {
    return path_by(parent, label->id, (PathRec){.parent = parent, .label = label->id});
}

/* A path that stands for work handed over by another process. */
static int64_t path_remote(uint64_t shard, uint64_t path, Label *handoff) {
    return path_by(path | 1ull << 63, shard, (PathRec){.label = handoff->id, .origin_shard = shard, .origin_path = path});
}

static Node *node_new(uint32_t track, uint32_t path, Label *label, Node *parent) {
    uint32_t id;
    NodeRec *rec = item_new(NODES, &id);
    Node *node = rec ? arena_get(sizeof *node) : NULL;
    if (!node) return NULL;
    memset(rec, 0, sizeof *rec);
    rec->track = track;
    rec->path = path;
    rec->min_ns = UINT64_MAX;
    item_publish(NODES);
    *node = (Node){.rec = rec, .label = label, .parent = parent, .id = id, .path = path};
    if (label->rec->kind == KIND_OVERFLOW) node->slow = SLOW_OVERFLOW;
    return node;
}
#endif
