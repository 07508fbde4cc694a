// Estimates every reference patch from its matches: weighted mean, or one flat value where the matches hold nothing
// but noise.
//
// Reference: Davy and Ehret 2020, equations 4 and 5, algorithm 4, section 4.3.3: PATCH work-items a reference, one a
//   column, and one pass over the matches. Weights come from the distances in the keys (common/match_key.h).
// Grid: (PATCH, references rounded up to GROUP, frames); group (PATCH, GROUP, 1).
// Constants: PATCH, STEP, NEIGHBOURS, INDEX_BITS, GROUP.
// Shapes: padded, offsets, keys as in search_lanes; sigma (frames); estimates (frames, rows, columns, PATCH, PATCH).
// Values are taken relative to the first pixel of the reference patch, so that a large level costs no precision.

#include "common/patch_grid.h"
#include "common/match_key.h"

__kernel __attribute__((reqd_work_group_size(PATCH, GROUP, 1)))
void average_patches(__global const float *padded, int pnz, int pny, int pitch,
                     int t0, int z0, int y0, int x0, int nz,
                     int first_y, int last_y, int rows,
                     int first_x, int last_x, int columns,
                     __global const int4 *offsets, __global const uint *keys,
                     __global const float *sigma, float strength, float flat,
                     __global float *estimates)
{
    __local float weight[GROUP][NEIGHBOURS];
    __local long source[GROUP][NEIGHBOURS];
    __local float sums[GROUP][PATCH];
    __local float squares[GROUP][PATCH];

    const int j = get_local_id(0);
    const int g = get_local_id(1);
    const int frame = get_global_id(2);
    const int index = min((int)get_global_id(1), rows * columns - 1);
    const int row = index / columns;
    const int column = index % columns;
    const size_t plane = (size_t)pny * pitch;
    const long here = ((long)(frame / nz + t0) * pnz + (frame % nz + z0)) * (long)plane
                      + (long)(y0 + grid_position(row, first_y, last_y)) * pitch
                      + x0 + grid_position(column, first_x, last_x);
    const float level = padded[here];

    const float s = sigma[frame];
    const float h = strength * s;

    __global const uint *matches = keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
    for (int k = j; k < NEIGHBOURS; k += PATCH) {
        const uint key = matches[(size_t)k * columns];
        const int4 offset = offsets[key & INDEX_MASK];
        weight[g][k] = exp(-fmax(key_distance(key) / (PATCH * PATCH) - 2.0f * s * s, 0.0f) / (h * h));
        source[g][k] = key >= FAR_KEY ? -1
                       : here + ((long)offset.x * pnz + offset.y) * (long)plane + (long)offset.z * pitch + offset.w;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = 0.0f;
    float square = 0.0f;
    float total = 0.0f;
    int found = 0;
    float values[PATCH];
    #pragma unroll
    for (int i = 0; i < PATCH; ++i)
        values[i] = 0.0f;
    for (int k = 0; k < NEIGHBOURS; ++k) {
        const long there = source[g][k];
        if (there >= 0) {
            const float w = weight[g][k];
            total += w;
            ++found;
            #pragma unroll
            for (int i = 0; i < PATCH; ++i) {
                const float b = padded[there + i * pitch + j] - level;
                sum += b;
                square = fma(b, b, square);
                values[i] = fma(w, b, values[i]);
            }
        }
    }
    sums[g][j] = sum;
    squares[g][j] = square;
    barrier(CLK_LOCAL_MEM_FENCE);

    float mean = 0.0f;
    float mean_square = 0.0f;
    for (int i = 0; i < PATCH; ++i) {
        mean += sums[g][i];
        mean_square += squares[g][i];
    }
    mean /= found * PATCH * PATCH;
    mean_square /= found * PATCH * PATCH;
    const bool is_flat = mean_square - mean * mean <= flat * s * s;

    __global float *estimate = estimates + ((size_t)frame * rows * columns + index) * (PATCH * PATCH);
    if (get_global_id(1) < rows * columns) {
        #pragma unroll
        for (int i = 0; i < PATCH; ++i)
            estimate[i * PATCH + j] = level + (is_flat ? mean : values[i] / total);
    }
}
