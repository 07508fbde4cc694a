// Averages the pixels of a window, weighted by the similarity of the patches around them: exact pixelwise NL-means. For CPUs: a
// work-item filters a block of ROWS x WIDTH pixels. For each offset it adds up squared differences down the columns of the
// patches, in registers, then along their rows.
//
// Reference: Goossens et al. 2010, sections 2.2 to 2.4; Buades et al. 2005.
// Grid: (blocks along x, blocks along y, nt * nz).
// Constants: RADIUS, RADIUS_Z of the patch; WINDOW, WINDOW_Z, half-widths of the search; BEFORE, AFTER, frames searched; GAUSSIAN,
//   1 where patches have weights; CHANNELS, compared and averaged together; WEIGHTS, see weight.h; SIGMA_MAP; COUNTS, 1 to yield the
//   number of pixels averaged, (sum of weights)^2 / sum of their squares; ROWS; WIDTH, LANES.
// Shapes: spread (channels, snt * snz, pny, pitch), as search/pad_far makes it, its first pixel WINDOW + RADIUS before the first
//   block along y and x; out (channels, frames_out, ny, nx), whose first pixel in frame first_out is
//   `skip` rows below the first block, and frame (t0, z0) of those read; slices lie at z_start of length_z. levels (CHANNELS,
//   nt * nz); variation (.., map_nx), whose first pixel yielded is at
//   (map_y, map_x). taps: weights of a patch along y and x, then along z.
// Blocks begin at multiples of ROWS of the image, since the order in which a column is added up depends on that.
// Products that are added are written as fma, and no others may become one: results do not depend on how loops are unrolled.

#pragma OPENCL FP_CONTRACT OFF

#include "common/lanes.h"
#include "common/mirror.h"
#include "pixelwise/column_sums.h"
#include "pixelwise/weight.h"

// Columns of a block and of the patches at its ends, in whole vectors.
#define SUMMED ((WIDTH + 2 * RADIUS + LANES - 1) / LANES * LANES)

// Of PATCH neighbouring values, the first one at `columns`, for LANES patches beside each other.
static inline real row_sum(const float *columns, __constant float *taps)
{
    real sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        const real value = *(const unaligned_real *)(columns + i);
        sum = GAUSSIAN ? fma(value, (real)taps[i], sum) : sum + value;
    }
    return sum;
}

__kernel void average_rows(AVERAGE_ARGUMENTS)
{
    const int x = get_global_id(0) * WIDTH;
    const int y = get_global_id(1) * ROWS;
    AVERAGED_FRAME
    // The first pixel of the block.
    const size_t here = (size_t)(y + WINDOW + RADIUS) * pitch + x + WINDOW + RADIUS;
    __global const float *own = spread + ((size_t)t * snz + z) * plane + here;

    real sums[CHANNELS][ROWS][WIDTH / LANES], totals[ROWS][WIDTH / LANES], factors[ROWS][WIDTH / LANES];
    for (int j = 0; j < ROWS; ++j)
        for (int i = 0; i < WIDTH / LANES; ++i) {
            for (int c = 0; c < CHANNELS; ++c)
                sums[c][j][i] = 0.0f;
            totals[j][i] = 0.0f;
            if (SIGMA_MAP) {
                float each[LANES];
                for (int k = 0; k < LANES; ++k) {
                    const int map_row = clamp(y + j - skip, 0, ny - 1) + map_y;
                    const int map_column = min(x + i * LANES + k, nx - 1) + map_x;
                    const float root = fmin(1.0f / variation[map_row * map_nx + map_column], 1e6f);
                    each[k] = root * root;
                }
                factors[j][i] = *(const unaligned_real *)each;
            }
        }

    real columns[ROWS][SUMMED / LANES];
    const float *column_values = (const float *)columns;
    for (int dt = max(-BEFORE, -t); dt <= min(AFTER, snt - 1 - t); ++dt)
        for (int dz = max(-WINDOW_Z, -(z_start + z)); dz <= min(WINDOW_Z, length_z - 1 - z_start - z); ++dz)
            for (int dy = -WINDOW; dy <= WINDOW; ++dy)
                for (int dx = -WINDOW; dx <= WINDOW; ++dx) {
                    if (dt == 0 && dz == 0 && dy == 0 && dx == 0)
                        continue;
                    const int step = dy * pitch + dx;
                    for (int i = 0; i < SUMMED / LANES; ++i) {
                        real given[REACHED], found[ROWS];
                        #pragma unroll
                        for (int row = 0; row < REACHED; ++row)
                            given[row] = 0.0f;
                        for (int c = 0; c < CHANNELS; ++c)
                            for (int k = -RADIUS_Z; k <= RADIUS_Z; ++k) {
                                const int slice = mirror_place(z_start + z + k, length_z) - z_start;
                                const int other = mirror_place(z_start + z + dz + k, length_z) - z_start;
                                const size_t corner = c * size + here - RADIUS * pitch - RADIUS + i * LANES;
                                __global const float *a = spread + ((size_t)t * snz + slice) * plane + corner;
                                __global const float *b = spread + ((size_t)(t + dt) * snz + other) * plane + corner + step;
                                const real part = ratios[c] * (GAUSSIAN ? taps[PATCH + RADIUS_Z + k] : 1.0f);
                                #pragma unroll
                                for (int row = 0; row < REACHED; ++row) {
                                    const real difference = AT(b + row * pitch) - AT(a + row * pitch);
                                    given[row] = SINGLE ? difference : fma(difference * part, difference, given[row]);
                                }
                            }
                        column_sums(given, taps, found);
                        #pragma unroll
                        for (int j = 0; j < ROWS; ++j)
                            columns[j][i] = found[j];
                    }
                    __global const float *there = spread + ((size_t)(t + dt) * snz + z + dz) * plane + here + step;
                    for (int j = 0; j < ROWS; ++j)
                        for (int i = 0; i < WIDTH / LANES; ++i) {
                            real distance = row_sum(column_values + j * SUMMED + i * LANES, taps);
                            if (SIGMA_MAP)
                                distance *= factors[j][i];
                            const real weight = weight_of(distance, unit, start);
                            totals[j][i] += weight;
                            const int at = j * pitch + i * LANES;
                            if (COUNTS)
                                sums[0][j][i] = fma(weight, weight, sums[0][j][i]);
                            else
                                for (int c = 0; c < CHANNELS; ++c) {
                                    const real difference = AT(there + c * size + at) - AT(own + c * size + at);
                                    sums[c][j][i] = fma(weight, difference, sums[c][j][i]);
                                }
                        }
                }

    for (int j = max(0, skip - y); j < ROWS && y + j - skip < ny; ++j)
        for (int i = 0; i < WIDTH / LANES && x + i * LANES < nx; ++i) {
            const real total = totals[j][i] + 1.0f;  // the weight of the pixel itself
            for (int c = 0; c < CHANNELS; ++c) {
                const real value = COUNTS ? total * total / (1.0f + sums[0][j][i])
                                          : AT(own + c * size + j * pitch + i * LANES) + sums[c][j][i] / total;
                const int first = x + i * LANES;
                __global float *to = out + (((size_t)c * frames_out + first_out + frame) * ny + y + j - skip) * nx + first;
                if (first + LANES <= nx)
                    PUT(to) = value;
                else {
                    float last[LANES];
                    *(unaligned_real *)last = value;
                    for (int k = 0; first + k < nx; ++k)
                        to[k] = last[k];
                }
            }
        }
}
