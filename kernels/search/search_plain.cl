// Finds the NEIGHBOURS most similar patches of each reference patch on a CPU.
//
// Reference: Davy and Ehret 2020, section 4.1.2: one work-item keeps the best list of its reference patch. Here a work-item
//   serves LANES neighbouring references at once, one in each lane of a vector. With LANES = 1 it is the simplest search
//   possible, and the faster kernels are tested against it.
// Grid: (groups of LANES references in x, rows of references, frames); one more group in each row serves the last reference
//   where that is not on the regular grid.
// Constants: PATCH, STEP, NEIGHBOURS, INDEX_BITS, LANES (1, 4, 8, 16), SPLIT (1 if LANES = 1, else STEP).
// Shapes: padded as pad_far writes it, its pixel (t0, z0, y0, x0) the origin of the reference frames; offsets (n_offsets) as
//   (dt, dz, dy, dx), nearest first, the first one zero; keys (frames, rows, NEIGHBOURS, references), sorted.
// Cost of a reference: n_offsets * PATCH^2 * 2 operations, and 2 * NEIGHBOURS for each candidate that enters the list.

#include "common/patch_grid.h"
#include "common/match_key.h"
#include "common/key_lanes.h"
#include "search/row_lanes.h"

__kernel void search_lanes(__global const float *padded, int pnz, int pny, int pitch,
                           int t0, int z0, int y0, int x0, int nz,
                           int first_y, int last_y, int rows,
                           int first_x, int last_x, int columns, int regular_groups,
                           __global const int4 *offsets, int n_offsets,
                           __global uint *keys)
{
    const int group = get_global_id(0);
    const int row = get_global_id(1);
    const int frame = get_global_id(2);
    const int t = frame / nz;
    const int z = frame % nz;

    const int x = x0 + lanes_x(group, regular_groups, first_x, last_x, STEP);
    const int y = y0 + grid_position(row, first_y, last_y);
    const size_t plane = (size_t)pny * pitch;
    __global const float *frame0 = padded + ((size_t)(t + t0) * pnz + (z + z0)) * plane;

    int reference_column[PATCH];
    for (int j = 0; j < PATCH; ++j)
        reference_column[j] = column_place(x + j, pitch);

    KEY best[NEIGHBOURS];
    for (int k = 0; k < NEIGHBOURS; ++k)
        best[k] = (KEY)NO_MATCH;

    for (int m = 0; m < n_offsets; ++m) {
        const int4 offset = offsets[m];
        __global const float *a = frame0 + (size_t)y * pitch;
        __global const float *b = frame0 + ((long)offset.x * pnz + offset.y) * (long)plane
                                  + (long)(y + offset.z) * pitch;
        REAL sum = (REAL)0.0f;
        for (int j = 0; j < PATCH; ++j) {
            __global const float *column = b + column_place(x + offset.w + j, pitch);
            REAL column_sum = (REAL)0.0f;
            #pragma unroll
            for (int i = 0; i < PATCH; ++i) {
                const REAL d = LOAD(a + reference_column[j] + i * pitch) - LOAD(column + i * pitch);
                column_sum = fma(d, d, column_sum);
            }
            sum += column_sum;
        }
        insert_lanes(best, (AS_KEY(sum) & ~INDEX_MASK) | (uint)m);
    }

    __global uint *out = keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns;
    store_lanes(best, out, group, regular_groups, first_x, last_x, STEP, columns);
}
