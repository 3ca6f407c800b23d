/* The scripted teacher: one action for each agent of one environment. teacher.py is the only caller, and holds the same rules
 * in NumPy; tests/examples compares the two. The cost field is relaxed to its fixed point, which does not depend on the order of
 * the sweeps, so the two cannot drift apart in ties. */
#include <stdint.h>
#include <stdlib.h>

enum { RADIUS = 4, WIDE = 2 * RADIUS + 1, CELLS = WIDE * WIDE, CENTRE = CELLS / 2 };
enum { FREE, WALL, ORE, EMPTY, HUB, AGENT };
enum { CARRYING = CELLS, HUB_DY, HUB_DX, LAST, OBSERVATION };
enum { LEASH = 12, AHEAD = 8, FAR = 1 << 20 };

/* stay, north, south, west, east */
static const int DY[5] = {0, -1, 1, 0, 0}, DX[5] = {0, 0, 0, -1, 1};
/* Loaded and unloaded agents evade to different sides, or two that meet head-on would mirror each other for ever. */
static const int LOADED[4] = {1, 3, 2, 4}, UNLOADED[4] = {1, 4, 2, 3};

static void spread(const uint8_t *cells, int32_t *cost) {
    for (int changed = 1, backward = 0; changed; backward = !backward) {
        changed = 0;
        for (int k = 0; k < CELLS; k++) {
            int i = backward ? CELLS - 1 - k : k, x = i % WIDE;
            if (cells[i] != FREE) continue;
            int32_t best = cost[i];
            if (i >= WIDE && cost[i - WIDE] + 1 < best) best = cost[i - WIDE] + 1;
            if (i < CELLS - WIDE && cost[i + WIDE] + 1 < best) best = cost[i + WIDE] + 1;
            if (x > 0 && cost[i - 1] + 1 < best) best = cost[i - 1] + 1;
            if (x < WIDE - 1 && cost[i + 1] + 1 < best) best = cost[i + 1] + 1;
            if (best < cost[i]) {
                cost[i] = best;
                changed = 1;
            }
        }
    }
}

static int descend(const uint8_t *cells, int32_t *cost, const int *order) {
    spread(cells, cost);
    int action = 0;
    int32_t least = FAR;
    for (int k = 0; k < 4; k++) {
        int a = order[k];
        int32_t c = cost[CENTRE + DY[a] * WIDE + DX[a]];
        if (c < least) {
            least = c;
            action = a;
        }
    }
    return action;
}

static int decide(const uint8_t *seen) {
    int32_t cost[CELLS];
    int carrying = seen[CARRYING], dy = seen[HUB_DY] - 128, dx = seen[HUB_DX] - 128, last = seen[LAST];
    const int *order = carrying ? LOADED : UNLOADED;
    int wanted = carrying ? HUB : ORE, visible = 0;
    for (int i = 0; i < CELLS; i++) {
        visible |= seen[i] == wanted;
        cost[i] = seen[i] == wanted ? 0 : FAR;
    }
    int action = visible ? descend(seen, cost, order) : 0;
    if (action) return action;
    if (!carrying && abs(dy) + abs(dx) <= LEASH) { /* explore: straight on */
        int heading = last ? last : 1;
        dy = DY[heading] * AHEAD;
        dx = DX[heading] * AHEAD;
    }
    for (int i = 0; i < CELLS; i++) {
        int y = i / WIDE - RADIUS, x = i % WIDE - RADIUS;
        int edge = abs(y) == RADIUS || abs(x) == RADIUS;
        cost[i] = edge && seen[i] == FREE ? abs(y - dy) + abs(x - dx) : FAR;
    }
    return descend(seen, cost, order);
}

void teacher_act(const uint8_t *observations, int32_t agents, int32_t *actions) {
    for (int32_t i = 0; i < agents; i++) actions[i] = decide(observations + (int64_t)i * OBSERVATION);
}
