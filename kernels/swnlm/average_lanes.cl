// Averages the pixels of a window whose patches differ like noise, for CPUs: a work-item takes a block of ROWS rows and VECTORS *
// LANES columns, offset by offset. Patches are sorted a vector at a time, if one of the vector passed the tests before.
//
// Reference: van der Vuurst 2023, algorithm 3.
// Grid: (blocks of columns, blocks of rows, frames).
// Constants: PATCH, WINDOW, LANES, ROWS, VECTORS; SIGMA_MAP; SHOW, 1 yields how many pixels were averaged, with the pixel itself.
// Shapes, and pixels that few resemble: as in average_group.
// Cost: 35 instructions for LANES pairs of patches, and 2 for each exchange where they are sorted.
// Sums are added in the order of the offsets, wherever a block begins.

#include "common/lanes.h"
#include "swnlm/normality.h"

#define AROUND (WINDOW / 2)
#define HALF (PATCH / 2)
#define COLUMNS (VECTORS * LANES)
// Rows of the block and of the patches around it; columns, with room for whole vectors.
#define HIGH (ROWS + PATCH - 1)
#define WIDE (COLUMNS + (PATCH - 1 + LANES - 1) / LANES * LANES)

#define PRIVATE_AT(pointer) (*(unaligned_real *)(pointer))

__kernel void average_lanes(__global const float *padded, __global const float *sums, int pny, int pitch,
                            int ny, int nx, __global const float *levels, __global const float *variation,
                            __constant float *weights, float4 limits, float least, int fewest, int keep, __global float *out)
{
    const int left = get_global_id(0) * COLUMNS;
    const int top = get_global_id(1) * ROWS;
    const int frame = get_global_id(2);
    const size_t plane = (size_t)frame * pny * pitch;
    const float level = levels[frame];
    const int rows = min(ROWS, ny - top);
    // The first pixel of the patch of the first pixel of the block.
    const size_t corner = plane + (size_t)(top + AROUND) * pitch + left + AROUND;
    const int centre = HALF * pitch + HALF;

    float line[WIDE];
    real across[HIGH][VECTORS];
    real total[ROWS][VECTORS], weight[ROWS][VECTORS], best[ROWS][VECTORS], accepted[ROWS][VECTORS];
    const real none = 0.0f, one = 1.0f;
    for (int y = 0; y < rows; ++y)
        for (int v = 0; v < VECTORS; ++v)
            total[y][v] = weight[y][v] = best[y][v] = accepted[y][v] = none;

    for (int dy = -AROUND; dy <= AROUND; ++dy)
        for (int dx = -AROUND; dx <= AROUND; ++dx) {
            if (dy == 0 && dx == 0)
                continue;
            const long step = (long)dy * pitch + dx;
            for (int y = 0; y < rows + PATCH - 1; ++y) {
                __global const float *row = padded + corner + (size_t)y * pitch;
                for (int x = 0; x < WIDE; x += LANES) {
                    const real difference = AT(row + x) - AT(row + x + step);
                    PRIVATE_AT(line + x) = difference * difference;
                }
                for (int v = 0; v < VECTORS; ++v) {
                    real sum = PRIVATE_AT(line + v * LANES);
                    #pragma unroll
                    for (int k = 1; k < PATCH; ++k)
                        sum += PRIVATE_AT(line + v * LANES + k);
                    across[y][v] = sum;
                }
            }
            for (int y = 0; y < rows; ++y)
                for (int v = 0; v < VECTORS; ++v) {
                    real squares = across[y][v];
                    #pragma unroll
                    for (int k = 1; k < PATCH; ++k)
                        squares += across[y + k][v];
                    const size_t at = corner + (size_t)y * pitch + v * LANES;
                    // Of the pixel itself, against the other one.
                    const real more = AT(padded + at + step + centre) - AT(padded + at + centre);
                    const real sum = fma(more, (real)-VALUES, AT(sums + at) - AT(sums + at + step));
                    const real spread = spread_of(sum, squares);
#if SIGMA_MAP
                    __global const float *map = variation + (at - plane) + centre;
                    const real mine = AT(map), other = AT(map + step);
                    const real variance = level * level * fma(mine, mine, other * other);
#else
                    const real variance = 2.0f * level * level;
#endif
                    const whole passed = LIKE_NOISE(sum, spread, variance, limits);
                    if (ANY(passed)) {
                        real f[VALUES];
                        #pragma unroll
                        for (int j = 0; j < PATCH; ++j)
                            #pragma unroll
                            for (int i = 0; i < PATCH; ++i)
                                f[j * PATCH + i] = AT(padded + at + j * pitch + i) - AT(padded + at + step + j * pitch + i);
                        const real found = shapiro_wilk(f, spread, weights);
                        const whole similar = passed && found > least;
                        const real w = similar ? found : none;
                        total[y][v] = fma(w, more, total[y][v]);
                        weight[y][v] += w;
                        best[y][v] = LARGER(best[y][v], w);
                        accepted[y][v] += similar ? one : none;
                    }
                }
        }
    for (int y = 0; y < rows; ++y)
        for (int x = 0; x < min(COLUMNS, nx - left); ++x) {
            const int v = x / LANES, lane = x % LANES;
            const float count = ((float *)&accepted[y][v])[lane];
            const size_t to = ((size_t)frame * ny + top + y) * nx + left + x;
            const float pixel = padded[corner + (size_t)y * pitch + x + centre];
            if (SHOW)
                out[to] = count + 1.0f;
            else if (count >= fewest)
                out[to] = pixel + ((float *)&total[y][v])[lane] / (((float *)&weight[y][v])[lane] + ((float *)&best[y][v])[lane]);
            else if (keep)
                out[to] = pixel;
        }
}
