// Averages the pixels of a window, weighted by the similarity of the patches around them: exact pixelwise NL-means. For GPUs: a
// work-item filters ROWS x COLUMNS pixels. For each offset it adds up squared differences down the columns of its patches, gets the
// sums of other columns from its neighbours, and adds up along the rows. What is compared lies in local memory.
//
// Reference: Goossens et al. 2010, sections 2.2 to 2.4; Buades et al. 2005.
// Grid: (32 * groups along x, GROUP_Y * groups along y, nt * nz); work-groups of (32, GROUP_Y, 1), rows of which are warps.
// Constants: those of average_rows, without WIDTH and LANES (1); GROUP_Y; COLUMNS, 4 or 2; CHUNK, offsets along y for which pixels are copied to
//   local memory at a time, a multiple of PAIR, of offsets that share what they read; HELD, 1 where an item keeps its own pixels
//   in registers; EVEN, 1 where all channels and slices of a patch count alike; NVIDIA.
// Shapes: those of average_rows; rows of spread are split in COLUMNS, see search/pad_far. The first blocks begin `skip` rows and
//   HALO items + `skip_x` columns before the first pixel yielded.
// Blocks begin at multiples of ROWS and of COLUMNS of the image, since the order of additions depends on that.
// Cost with HELD, GAUSSIAN 0, a patch of 7, for a pixel and offset: 16 instructions, 0.7 words of local memory, 1.5 exchanges, 1
//   exponential with PAIR 3 and one channel; 28 instructions, 5.6 words, 2 exchanges with PAIR 1 and three channels.

#pragma OPENCL FP_CONTRACT OFF

#define LANES 1
#include "common/lanes.h"
#include "common/mirror.h"
#include "pixelwise/column_sums.h"
#include "pixelwise/exchange.h"
#include "pixelwise/weight.h"

// Planes that are compared, and what of one is copied: the pixels of a group, and those around.
#define PLANES (CHANNELS * (2 * RADIUS_Z + 1))
#define OWN_HEIGHT (GROUP_Y * ROWS + PATCH - 1)
#define HEIGHT (OWN_HEIGHT + CHUNK - 1)
#define LEFT ((WINDOW + COLUMNS - 1) / COLUMNS)
// Which part of a row has a column, and where in it.
#define PART_OF(i) ((i) & (COLUMNS - 1))
#define PLACE_OF(i) ((i) >> (COLUMNS == 4 ? 2 : 1))
#define PART (ITEMS + 2 * LEFT)
// Columns that a row of items yields: those whose patches it knows, in whole items; the rest is only there for its neighbours.
#define YIELDED ((COLUMNS * ITEMS - 2 * RADIUS) / COLUMNS * COLUMNS)

#include "pixelwise/compare_columns.h"

__kernel __attribute__((reqd_work_group_size(ITEMS, GROUP_Y, 1)))
void average_columns(AVERAGE_ARGUMENTS, int skip_x)
{
    const int lane = get_local_id(0);
    const int row_item = get_local_id(1);
    const int first_item = get_group_id(0) * (YIELDED / COLUMNS);
    const int x = COLUMNS * (first_item + lane - HALO);
    const int first_row = get_group_id(1) * GROUP_Y * ROWS;
    const int y = first_row + row_item * ROWS;
    AVERAGED_FRAME
    const int part = pitch / COLUMNS;
    // The first row that the item compares, and its columns within a part of the row.
    const size_t here = (size_t)(y + WINDOW) * pitch + first_item + lane + LEFT;

    __local float others[PLANES * HEIGHT * COLUMNS * PART] __attribute__((aligned(8)));
#if HELD
    float own[PLANES * REACHED * COLUMNS];
#else
    __local float all_own[PLANES][OWN_HEIGHT][COLUMNS][ITEMS];
    __local const float *own = &all_own[0][row_item * ROWS][0][lane];
#endif
#if !NVIDIA
    __local float shared[2][GROUP_Y][ROWS][COLUMNS][ITEMS];
    int turn = 0;
#endif
    #pragma unroll
    for (int p = 0; p < PLANES; ++p) {
        const int slice = mirror_place(z_start + z + p % (2 * RADIUS_Z + 1) - RADIUS_Z, length_z) - z_start;
        const size_t at = p / (2 * RADIUS_Z + 1) * size + ((size_t)t * snz + slice) * plane + here;
        #pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
#if HELD
            #pragma unroll
            for (int row = 0; row < REACHED; ++row)
                OWN(p, row, i) = spread[at + row * pitch + i * part];
#else
            for (int row = row_item; row < OWN_HEIGHT; row += GROUP_Y)
                all_own[p][row][i][lane] = spread[at + (row - row_item * ROWS) * pitch + i * part];
#endif
        }
    }

    __global const float *mine = spread + ((size_t)t * snz + z) * plane + here;
    float sums[CHANNELS][ROWS][COLUMNS], totals[ROWS][COLUMNS], factors[ROWS][COLUMNS];
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i)
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                sums[c][j][i] = 0.0f;
            totals[j][i] = 0.0f;
            factors[j][i] = 1.0f;
#if SIGMA_MAP
            const int map_row = clamp(y + j - skip, 0, ny - 1) + map_y;
            const int map_column = clamp(x + i - skip_x, 0, nx - 1) + map_x;
            const float root = fmin(1.0f / variation[map_row * map_nx + map_column], 1e6f);
            factors[j][i] = root * root;
#endif
        }

    for (int dt = max(-BEFORE, -t); dt <= min(AFTER, snt - 1 - t); ++dt)
        for (int dz = max(-WINDOW_Z, -(z_start + z)); dz <= min(WINDOW_Z, length_z - 1 - z_start - z); ++dz)
            for (int first = -WINDOW; first <= WINDOW; first += CHUNK) {
                barrier(CLK_LOCAL_MEM_FENCE);
                size_t from[PLANES];
                #pragma unroll
                for (int p = 0; p < PLANES; ++p) {
                    const int slice = mirror_place(z_start + z + dz + p % (2 * RADIUS_Z + 1) - RADIUS_Z, length_z) - z_start;
                    from[p] = p / (2 * RADIUS_Z + 1) * size + ((size_t)(t + dt) * snz + slice) * plane + first_item;
                }
                #pragma unroll 4
                for (int row = row_item; row < HEIGHT; row += GROUP_Y) {
                    // Rows beyond the last ones compared may not be there.
                    const int at = min(first_row + WINDOW + first + row, pny - 1) * pitch;
                    #pragma unroll
                    for (int k = lane; k < COLUMNS * PART; k += ITEMS)
                        #pragma unroll
                        for (int p = 0; p < PLANES; ++p)
                            *PLACE(others, others, p, row, k) = spread[from[p] + at + k / PART * part + k % PART];
                }
                barrier(CLK_LOCAL_MEM_FENCE);
                for (int dx = -WINDOW; dx <= WINDOW; ++dx) {
                    // Where the columns of the other patches are.
                    int columns_at[COLUMNS];
                    #pragma unroll
                    for (int i = 0; i < COLUMNS; ++i)
                        columns_at[i] = PART_OF(i + dx) * PART + LEFT + PLACE_OF(i + dx) + lane;
                    for (int dy = first; dy <= min(first + CHUNK - 1, WINDOW); dy += PAIR) {
                        const int above = (row_item * ROWS + dy - first) * COLUMNS * PART;
                        __local const float *pairs = others + 2 * above, *last = others + above;
                        float columns[PAIR][ROWS][COLUMNS];
                        compare_columns(own, pairs, last, columns_at, ratios, taps, columns);
                        #pragma unroll
                        for (int q = 0; q < PAIR; ++q) {
#if !NVIDIA
                            turn = 1 - turn;
                            #pragma unroll
                            for (int j = 0; j < ROWS; ++j)
                                #pragma unroll
                                for (int i = 0; i < COLUMNS; ++i)
                                    shared[turn][row_item][j][i][lane] = columns[q][j][i];
                            // The other half is free: all have read it before they came here last.
                            barrier(CLK_LOCAL_MEM_FENCE);
#endif
                            if (dy + q > WINDOW || (dt == 0 && dz == 0 && dy + q == 0 && dx == 0))
                                continue;
                            float distances[ROWS][COLUMNS];
                            #pragma unroll
                            for (int j = 0; j < ROWS; ++j)
#if NVIDIA
                                row_sums(columns[q][j], taps, distances[j]);
#else
                                row_sums(shared[turn][row_item][j][0], lane, taps, distances[j]);
#endif
                            #pragma unroll
                            for (int j = 0; j < ROWS; ++j)
                                #pragma unroll
                                for (int i = 0; i < COLUMNS; ++i) {
                                    const float distance = SIGMA_MAP ? distances[j][i] * factors[j][i] : distances[j][i];
                                    const float weight = weight_of(distance, unit, start);
                                    totals[j][i] += weight;
                                    if (COUNTS)
                                        sums[0][j][i] = fma(weight, weight, sums[0][j][i]);
                                    else
                                        #pragma unroll
                                        for (int c = 0; c < CHANNELS; ++c) {
                                            const int p = c * (2 * RADIUS_Z + 1) + RADIUS_Z;
                                            const float difference =
                                                OTHER(p, j + RADIUS + q, columns_at[i]) - OWN(p, j + RADIUS, i);
                                            sums[c][j][i] = fma(weight, difference, sums[c][j][i]);
                                        }
                                }
                        }
                    }
                }
            }

    #pragma unroll
    for (int j = 0; j < ROWS; ++j)
        #pragma unroll
        for (int i = 0; i < COLUMNS; ++i) {
            const int column = COLUMNS * lane + i - RADIUS;
            const int to_y = y + j - skip, to_x = x + i - skip_x;
            if (column < 0 || column >= YIELDED || to_y < 0 || to_y >= ny || to_x < 0 || to_x >= nx)
                continue;
            const float total = totals[j][i] + 1.0f;  // the weight of the pixel itself
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
                const float value = COUNTS ? total * total / (1.0f + sums[0][j][i])
                                           : mine[c * size + (j + RADIUS) * pitch + i * part] + sums[c][j][i] / total;
                out[(((size_t)c * frames_out + first_out + frame) * ny + to_y) * nx + to_x] = value;
            }
        }
}
