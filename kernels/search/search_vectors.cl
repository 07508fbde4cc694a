// Finds the NEIGHBOURS most similar patches of each reference patch on a CPU.
//
// Reference: Davy and Ehret 2020, section 4.1.4, for vectors. A work-item serves ROWS rows of VECTORS vectors of references, one
//   reference in each lane. It compares squares of STEP x STEP pixels with their shifted copies, and neighbouring patches share
//   the sums: a patch is PATCH / STEP squares wide, and parts of one more where STEP does not divide PATCH. CHUNK candidates
//   are sorted together.
// Grid: (strips of VECTORS * LANES references in x, strips of ROWS rows, frames); one more strip in each direction serves the last
//   references where these are not on the regular grid.
// Constants: PATCH, STEP, NEIGHBOURS, INDEX_BITS, LANES (4, 8, 16), SPLIT = STEP, ROWS, VECTORS.
// Shapes: padded as pad_far writes it, its pixel (t0, z0, y0, x0) the origin of the reference frames; offsets (n_offsets) as
//   (dt, dz, dy, dx), nearest first, the first one zero; keys (frames, rows, NEIGHBOURS, references), sorted.
// Cost of a square and offset: 2 STEP^2 operations, 2 * PATCH / STEP for sums, 14 for each candidate where lists are of 16.

#include "common/patch_grid.h"
#include "common/match_key.h"
#include "common/key_lanes.h"
#include "search/row_lanes.h"

#define WHOLE (PATCH / STEP) // squares across a patch
#define REST (PATCH % STEP)  // pixels beyond them
#define SQUARES (WHOLE + (REST > 0))
// Vectors of squares beyond those of the references: patches of the last ones reach into them.
#define EXTRA ((SQUARES + LANES - 2) / LANES)
#define WIDTH ((VECTORS + EXTRA) * LANES)
// The lanes from any place on.
#define FROM(place) (*(const unaligned_real *)(place))
#define KEEP(place) (*(REAL *)(place))
#define CHUNK 8

// Sum over one row of squares of each patch: `whole` of all squares but the last part, `part` of that.
static inline REAL across(const float *whole, const float *part)
{
    REAL sum = FROM(whole);
    #pragma unroll
    for (int d = 1; d < WHOLE; ++d)
        sum += FROM(whole + d);
#if REST
    sum += FROM(part + WHOLE);
#endif
    return sum;
}

__kernel void search_vectors(TILE_ARGUMENTS, int regular_rows, int regular_columns,
                             __global const int4 *offsets, int n_offsets, __global uint *keys)
{
    const int frame = get_global_id(2);
    const int row = min((int)get_global_id(1) * ROWS, regular_rows);
    const int high = row < regular_rows ? min(ROWS, regular_rows - row) : 1;
    const int regular_groups = (regular_columns + LANES - 1) / LANES;
    const int group = min((int)get_global_id(0) * VECTORS, regular_groups);
    const int wide = group < regular_groups ? min(VECTORS, regular_groups - group) : 1;

    const int x = x0 + lanes_x(group, regular_groups, first_x, last_x, STEP);
    const int y = y0 + grid_position(row, first_y, last_y);
    const size_t plane = (size_t)pny * pitch;
    __global const float *a = padded + ((size_t)(frame / nz + t0) * pnz + frame % nz + z0) * plane + (size_t)y * pitch;

    KEY best[ROWS * VECTORS][NEIGHBOURS];
    for (int r = 0; r < high; ++r)
        for (int w = 0; w < wide; ++w)
            for (int k = 0; k < NEIGHBOURS; ++k)
                best[r * VECTORS + w][k] = (KEY)NO_MATCH;

    for (int start = 0; start < n_offsets; start += CHUNK) {
        KEY found[ROWS * VECTORS][CHUNK];
        for (int c = 0; c < CHUNK; ++c) {
            const int m = start + c;
            if (m >= n_offsets) {
                for (int r = 0; r < high; ++r)
                    for (int w = 0; w < wide; ++w)
                        found[r * VECTORS + w][c] = (KEY)NO_MATCH;
                continue;
            }
            const int4 offset = offsets[m];
            __global const float *b = a + ((long)offset.x * pnz + offset.y) * (long)plane + (long)offset.z * pitch;
            int here[STEP], there[STEP];
            #pragma unroll
            for (int j = 0; j < STEP; ++j) {
                here[j] = column_place(x + j, pitch);
                there[j] = column_place(x + offset.w + j, pitch);
            }
            // Of each row of squares: the sum across patches, and that of its first REST rows of pixels.
            REAL sums[ROWS + SQUARES - 1][VECTORS];
#if REST
            REAL tops[ROWS + SQUARES - 1][VECTORS];
#endif
            for (int q = 0; q < high + SQUARES - 1; ++q) {
                // `left` and `corner` are of the first REST columns of a square.
                float whole[WIDTH] __attribute__((aligned(64)));
#if REST
                float left[WIDTH] __attribute__((aligned(64)));
                float top[WIDTH] __attribute__((aligned(64)));
                float corner[WIDTH] __attribute__((aligned(64)));
#endif
                for (int w = 0; w < wide + EXTRA; ++w) {
                    __global const float *one = a + q * STEP * pitch + w * LANES;
                    __global const float *other = b + q * STEP * pitch + w * LANES;
                    REAL sum[2][2] = {{(REAL)0.0f, (REAL)0.0f}, {(REAL)0.0f, (REAL)0.0f}};
                    #pragma unroll
                    for (int i = 0; i < STEP; ++i) {
                        #pragma unroll
                        for (int j = 0; j < STEP; ++j) {
                            const REAL d = LOAD(one + i * pitch + here[j]) - LOAD(other + i * pitch + there[j]);
                            sum[i >= REST][j >= REST] = fma(d, d, sum[i >= REST][j >= REST]);
                        }
                    }
#if REST
                    KEEP(top + w * LANES) = sum[0][0] + sum[0][1];
                    KEEP(corner + w * LANES) = sum[0][0];
                    KEEP(left + w * LANES) = sum[0][0] + sum[1][0];
                    KEEP(whole + w * LANES) = (sum[0][0] + sum[0][1]) + (sum[1][0] + sum[1][1]);
#else
                    KEEP(whole + w * LANES) = sum[1][1];
#endif
                }
                for (int w = 0; w < wide; ++w) {
#if REST
                    sums[q][w] = across(whole + w * LANES, left + w * LANES);
                    tops[q][w] = across(top + w * LANES, corner + w * LANES);
#else
                    sums[q][w] = across(whole + w * LANES, whole);
#endif
                }
            }
            for (int r = 0; r < high; ++r) {
                for (int w = 0; w < wide; ++w) {
                    REAL sum = sums[r][w];
                    #pragma unroll
                    for (int d = 1; d < WHOLE; ++d)
                        sum += sums[r + d][w];
#if REST
                    sum += tops[r + WHOLE][w];
#endif
                    found[r * VECTORS + w][c] = (AS_KEY(sum) & ~INDEX_MASK) | (uint)m;
                }
            }
        }
        for (int r = 0; r < high; ++r) {
            for (int w = 0; w < wide; ++w) {
#if MERGES
                merge_eight(best[r * VECTORS + w], found[r * VECTORS + w]);
#else
                for (int c = 0; c < CHUNK; ++c)
                    insert_lanes(best[r * VECTORS + w], found[r * VECTORS + w][c]);
#endif
            }
        }
    }

    for (int r = 0; r < high; ++r) {
        __global uint *out = keys + ((size_t)frame * rows + row + r) * NEIGHBOURS * columns;
        for (int w = 0; w < wide; ++w)
            store_lanes(best[r * VECTORS + w], out, group + w, regular_groups, first_x, last_x, STEP, columns);
    }
}
