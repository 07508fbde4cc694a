// Estimates every reference patch from its matches: a weighted mean, or one flat value where the matches hold only noise.
//
// Reference: Davy and Ehret 2020, equations 4 and 5, algorithm 4, section 4.3.3: PATCH work-items a reference, one a column, and
//   one pass over the matches. Weights follow from the distances in the keys (common/match_key.h). On a GPU the pixels that a
//   work-group can reach are copied to local memory first: matches are scattered, and a cache would look up a line for each
//   patch that a warp reads.
// Grid: (PATCH, GROUP_X * GROUP_Y * groups, frames); a group serves GROUP_X times GROUP_Y neighbouring references, `groups_x`
//   groups side by side.
// Constants: PATCH, STEP, NEIGHBOURS, INDEX_BITS, GROUP_X, GROUP_Y, WINDOW; LOCAL_TILE = 1 copies to local memory (only where
//   one frame is searched); SIGMA_MAP = 1 where sigma varies within a frame: a group uses the sigma in the middle of its
//   reference patch; SQUARES = 1 averages squares and subtracts the bias of Rician noise, 2 sigma^2 (Manjon et al. 2008), and
//   where the mean of all squares is at most `flat` times that bias there is no signal and estimates are at most 0.
// Shapes: padded, offsets, keys as in search_plain; sigma (frames); estimates (frames, rows, columns, PATCH, PATCH); variation
//   (rows of the tile, map_pitch), whose first pixel is that of the tile.
// Sums are relative to the first pixel of the reference patch, so that a high grey level costs no precision.

#include "common/patch_grid.h"
#include "common/match_key.h"
#include "common/search_group.h"

#if LOCAL_TILE
#define OFFSET int
#else
#define OFFSET long
#endif
#define GROUP (GROUP_X * GROUP_Y)
#define TILE_X REACHED(GROUP_X)
#define TILE_Y REACHED(GROUP_Y)

__kernel __attribute__((reqd_work_group_size(PATCH, GROUP, 1)))
void average_patches(__global const float *padded, int pnz, int pny, int pitch,
                     int t0, int z0, int y0, int x0, int nz,
                     int first_y, int last_y, int rows,
                     int first_x, int last_x, int columns, int groups_x,
                     __global const int4 *offsets, __global const uint *keys,
                     __global const float *sigma, float strength, float flat,
                     __global float *estimates
#if SIGMA_MAP
                     , __global const float *variation, int map_pitch
#endif
                     )
{
    __local float weight[GROUP][NEIGHBOURS];
    __local OFFSET source[GROUP][NEIGHBOURS];
    __local float sums[GROUP][PATCH];
    __local float squares[GROUP][PATCH];

    const int j = get_local_id(0);
    const int g = get_local_id(1);
    const int frame = get_global_id(2);
    const int group = get_group_id(1);
    const int row0 = group / groups_x * GROUP_Y;
    const int column0 = group % groups_x * GROUP_X;
    const bool mine = row0 + g / GROUP_X < rows && column0 + g % GROUP_X < columns;
    const int row = min(row0 + g / GROUP_X, rows - 1);
    const int column = min(column0 + g % GROUP_X, columns - 1);
    const size_t plane = (size_t)pny * pitch;
    const size_t first = ((size_t)(frame / nz + t0) * pnz + (frame % nz + z0)) * plane;
    const int y = y0 + grid_position(row, first_y, last_y);
    const int x = x0 + grid_position(column, first_x, last_x);

#if LOCAL_TILE
    __local float pixels[TILE_Y * TILE_X];
    const int line = TILE_X;
    const int top = y0 + grid_position(row0, first_y, last_y) - WINDOW / 2;
    const int left = x0 + grid_position(column0, first_x, last_x) - WINDOW / 2;
    copy_pixels(pixels, TILE_Y, TILE_X, g * PATCH + j, GROUP * PATCH, padded + first, pny, pitch, top, left);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int here = (y - top) * TILE_X + x - left;
#else
    __global const float *pixels = padded;
    const int line = pitch;
    const long here = first + (size_t)y * pitch + x;
#endif
    const float level = pixels[here];

#if SIGMA_MAP
    const float s = sigma[frame] * variation[(size_t)(y - y0 + PATCH / 2) * map_pitch + x - x0 + PATCH / 2];
#else
    const float s = sigma[frame];
#endif
    const float h = strength * s;

    __global const uint *matches = keys + ((size_t)frame * rows + row) * NEIGHBOURS * columns + column;
    for (int k = j; k < NEIGHBOURS; k += PATCH) {
        const uint key = matches[(size_t)k * columns];
        // A key that is no match may point beyond the table.
        const int4 offset = offsets[key < FAR_KEY ? key & INDEX_MASK : 0u];
        // Avoids exp(0 / 0) where sigma is so small that its square is 0.
        const float excess = key_distance(key) / (PATCH * PATCH) - 2.0f * s * s;
        weight[g][k] = excess > 0.0f ? exp(-excess / (h * h)) : 1.0f;
#if LOCAL_TILE
        const int there = here + offset.z * TILE_X + offset.w;
#else
        const long there = here + ((long)offset.x * pnz + offset.y) * (long)plane + (long)offset.z * pitch + offset.w;
#endif
        source[g][k] = key >= FAR_KEY ? -1 : there;
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
        const OFFSET there = source[g][k];
        if (there >= 0) {
            const float w = weight[g][k];
            total += w;
            ++found;
            #pragma unroll
            for (int i = 0; i < PATCH; ++i) {
                const float b = pixels[there + i * line + j] - level;
                sum += b;
                square = fma(b, b, square);
                values[i] = fma(w, SQUARES ? b * (b + 2.0f * level) : b, values[i]);
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
    // So small a mean square is noise alone: any estimate above 0 is mostly chance.
    const bool is_dark = level * level + 2.0f * level * mean + mean_square <= flat * 2.0f * s * s;

    __global float *estimate = estimates + (((size_t)frame * rows + row) * columns + column) * (PATCH * PATCH);
    if (mine) {
        #pragma unroll
        for (int i = 0; i < PATCH; ++i) {
            const float above = is_flat ? mean_square + 2.0f * level * mean : values[i] / total;
            const float of_signal = level * level + above - 2.0f * s * s;
            const float of_values = level + (is_flat ? mean : values[i] / total);
            estimate[i * PATCH + j] = !SQUARES ? of_values : is_dark ? fmin(of_signal, 0.0f) : of_signal;
        }
    }
}
