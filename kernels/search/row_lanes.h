// Which references the lanes of a vector hold: LANES neighbouring ones of a row; the last lane of the group after the regular ones
// is the last reference of the row, where that is not on the regular grid.
//
// Needs: common/key_lanes.h. Constants: SPLIT (phases into which pad_far splits rows).

#include "common/key_order.h"

// First pixel of the first reference; the others follow `step` apart.
static inline int lanes_x(int group, int regular_groups, int first_x, int last_x, int step)
{
    return group < regular_groups ? first_x + group * LANES * step : last_x - (LANES - 1) * step;
}

// Where a column is in a row of memory.
static inline int column_place(int x, int pitch)
{
    return x % SPLIT * (pitch / SPLIT) + x / SPLIT;
}

static inline void insert_lanes(KEY *best, KEY key)
{
    if (ANY(key < best[NEIGHBOURS - 1]))
        insert_key(best, key);
}

// Writes the lists: one value for each rank, `columns` values apart.
static inline void store_lanes(const KEY *best, __global uint *out, int group, int regular_groups, int first_x, int last_x,
                               int step, int columns)
{
    const bool regular = group < regular_groups;
    for (int k = 0; k < NEIGHBOURS; ++k) {
        uint lanes[LANES];
        STORE_LANES(best[k], lanes);
        for (int l = 0; l < LANES; ++l) {
            const int column = regular ? group * LANES + l : columns - 1;
            if (regular ? first_x + column * step <= last_x : l == LANES - 1)
                out[k * columns + column] = lanes[l];
        }
    }
}
