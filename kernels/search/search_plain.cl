// Finds the NEIGHBOURS most similar patches of each reference patch: the simplest search possible, for devices and settings that
// none of the others suits. The others are tested against it.
//
// Reference: Davy and Ehret 2020, section 4.1.2: one work-item keeps the best list of its reference patch.
// Grid: (references in x, rows of references, frames).
// Constants: PATCH, STEP, NEIGHBOURS, INDEX_BITS.
// Shapes: padded as pad_far writes it with SPLIT = 1, its pixel (t0, z0, y0, x0) the origin of the reference frames; offsets
//   (n_offsets) as (dt, dz, dy, dx), nearest first, the first one zero; keys (frames, rows, NEIGHBOURS, columns), sorted.
// Cost of a reference: n_offsets * PATCH^2 * 2 operations, and 2 * NEIGHBOURS for each candidate that enters the list.

#include "common/patch_grid.h"
#include "common/match_key.h"
typedef uint KEY;
#include "common/key_order.h"

__kernel void search_plain(TILE_ARGUMENTS, __global const int4 *offsets, int n_offsets, __global uint *keys)
{
    const int column = get_global_id(0);
    const int row = get_global_id(1);
    const int frame = get_global_id(2);
    if (column >= columns || row >= rows)
        return;

    const size_t plane = (size_t)pny * pitch;
    __global const float *a = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane
                              + (size_t)(y0 + grid_position(row, first_y, last_y)) * pitch
                              + x0 + grid_position(column, first_x, last_x);
    uint best[NEIGHBOURS];
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = NO_MATCH;

    for (int m = 0; m < n_offsets; ++m) {
        const int4 offset = offsets[m];
        __global const float *b = a + ((long)offset.x * pnz + offset.y) * (long)plane + (long)offset.z * pitch + offset.w;
        float sum = 0.0f;
        for (int i = 0; i < PATCH; ++i) {
            for (int j = 0; j < PATCH; ++j) {
                const float d = a[i * pitch + j] - b[i * pitch + j];
                sum = fma(d, d, sum);
            }
        }
        const uint key = (as_uint(sum) & ~INDEX_MASK) | (uint)m;
        if (key < best[NEIGHBOURS - 1])
            insert_key(best, key);
    }

    __global uint *out = keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
    for (int k = 0; k < NEIGHBOURS; ++k)
        out[k * columns] = best[k];
}
