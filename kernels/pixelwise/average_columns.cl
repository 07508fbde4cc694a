// Averages the pixels of a window, weighted by the similarity of the patches around them: exact pixelwise NL-means. For GPUs: a
// work-item filters ROWS x 4 pixels. For each offset it adds up squared differences down the columns of its patches, gets the
// sums of other columns from its neighbours, and adds up along the rows. All else stays in registers.
//
// Reference: Goossens et al. 2010, sections 2.2 to 2.4; Buades et al. 2005.
// Grid: (32 * groups along x, GROUP_Y * groups along y, nt * nz); work-groups of (32, GROUP_Y, 1), rows of which are warps.
// Constants: those of average_rows, without WIDTH and LANES (1); GROUP_Y; HELD, 1 where an item keeps the pixels it compares in
//   registers, which needs COMPARED 1 and RADIUS_Z 0; APART, 1 where what is averaged is not what is compared; NVIDIA.
// Shapes: those of average_rows; rows of spread and compared are split in four, see spread_pixels. `left` pixels of a row lie
//   before the first of those that items compare. The first item of HALO is only there for its neighbours, as is the last.
//   The first block is `skip` rows and `skip_x` columns before the first pixel yielded.
// Blocks begin at multiples of ROWS and of 4 of the image, since the order of additions depends on that.
// Cost with HELD, GAUSSIAN 0, a patch of 7: 15 instructions a pixel and offset, 1.9 loads, 1.5 exchanges, 1 exponential.

#pragma OPENCL FP_CONTRACT OFF

#define LANES 1
#include "common/lanes.h"
#include "common/mirror.h"
#include "pixelwise/column_sums.h"
#include "pixelwise/weight.h"

#define ITEMS 32
#define HALO ((RADIUS + 3) / 4)
#define BESIDE ((RADIUS + 3) / 4 * 4)

// Of the values from BESIDE columns before an item to BESIDE after it, the sums over the patches around its four columns.
static inline void row_sums(const float *columns, __constant float *taps, float *found)
{
    const float *first = columns + BESIDE - RADIUS;
    if (GAUSSIAN || RADIUS < 2) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            found[i] = 0.0f;
            #pragma unroll
            for (int k = 0; k < PATCH; ++k)
                found[i] = GAUSSIAN ? fma(first[i + k], taps[k], found[i]) : found[i] + first[i + k];
        }
        return;
    }
    // What all four share, then what lies on either side.
    float shared = first[3];
    #pragma unroll
    for (int k = 4; k < PATCH; ++k)
        shared += first[k];
    const float two = first[1] + first[2];
    const float right = first[PATCH] + first[PATCH + 1];
    found[0] = shared + (first[0] + two);
    found[1] = shared + (two + first[PATCH]);
    found[2] = shared + (first[2] + right);
    found[3] = shared + (right + first[PATCH + 2]);
}

// The value of the item that is `SHIFT` to the right (negative: to the left) in the same row.
#if NVIDIA
static inline float from_left(float value, int far)
{
    float found;
    asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}

static inline float from_right(float value, int far)
{
    float found;
    asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, GROUP_Y, 1)))
void average_columns(__global const float *spread, __global const float *compared, int first_level, int snt, int snz,
                     int pny, int pitch, int left, int t0, int z0, int z_start, int length_z, int skip, int skip_x,
                     int nt, int nz, int ny, int nx, __global const float *levels,
                     __global const float *variation, int map_y, int map_x, int map_nx,
                     float strength, __constant float *taps, int first_out, int frames_out, __global float *out)
{
    const int lane = get_local_id(0);
    const int item = get_group_id(0) * (ITEMS - 2 * HALO) + lane;
    const int x = 4 * (item - HALO);
    const int block = get_global_id(1);
    const int y = block * ROWS;
    const int frame = get_global_id(2);
    const int t = frame / nz + t0;
    const int z = frame % nz + z0;
    const size_t plane = (size_t)pny * pitch;
    const size_t size = (size_t)snt * snz * plane;
    const int quarter = pitch / 4;
    // The first row that the item compares, and its columns within a quarter of the row.
    const size_t here = (size_t)(y + WINDOW) * pitch + item + left / 4;

    float units[COMPARED];
    int noisy = 0;
    for (int c = 0; c < COMPARED; ++c)
        noisy += first_level < 0 || levels[(size_t)(first_level + c) * nt * nz + frame] > 0.0f;
    const float count = GAUSSIAN ? 1.0f : (float)(PATCH * PATCH * (2 * RADIUS_Z + 1));
    for (int c = 0; c < COMPARED; ++c) {
        const float level = first_level < 0 ? 1.0f : levels[(size_t)(first_level + c) * nt * nz + frame];
        units[c] = COMPARED > 1 && !(level > 0.0f) ? 0.0f : distance_unit(strength, level, count * max(noisy, 1));
    }
    const float start = WEIGHTS == 0 ? 2.88539008f / (strength * strength) : 0.0f;

    __global const float *mine = spread + ((size_t)t * snz + z) * plane + here;
    float sums[CHANNELS][ROWS][4], totals[ROWS][4], most[ROWS][4], factors[ROWS][4], own[REACHED][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c)
                sums[c][j][i] = 0.0f;
            totals[j][i] = 0.0f;
            most[j][i] = 0.0f;
            factors[j][i] = 1.0f;
#if SIGMA_MAP
            const int map_row = clamp(y + j - skip, 0, ny - 1) + map_y;
            const int map_column = clamp(x + i - skip_x, 0, nx - 1) + map_x;
            const float root = fmin(1.0f / variation[map_row * map_nx + map_column], 1e6f);
            factors[j][i] = root * root;
#endif
        }
        #pragma unroll
        for (int row = 0; row < REACHED; ++row)
            own[row][i] = HELD ? compared[max(first_level, 0) * size + ((size_t)t * snz + z) * plane + here
                                          + row * pitch + i * quarter]
                               : 0.0f;
    }

#if !NVIDIA
    __local float shared[2][GROUP_Y][ROWS][4][ITEMS];
    int turn = 0;
#endif
    for (int dt = max(-BEFORE, -t); dt <= min(AFTER, snt - 1 - t); ++dt)
        for (int dz = max(-WINDOW_Z, -(z_start + z)); dz <= min(WINDOW_Z, length_z - 1 - z_start - z); ++dz)
            for (int dx = -WINDOW; dx <= WINDOW; ++dx) {
                // Where the columns of the other patches are.
                int columns_at[4];
                #pragma unroll
                for (int i = 0; i < 4; ++i)
                    columns_at[i] = ((i + dx) & 3) * quarter + ((i + dx) >> 2);
                for (int dy = -WINDOW; dy <= WINDOW; ++dy) {
                    if (dt == 0 && dz == 0 && dy == 0 && dx == 0)
                        continue;
                    float columns[ROWS][BESIDE + 4 + BESIDE], centres[ROWS][4];
                    #pragma unroll
                    for (int c = 0; c < COMPARED; ++c)
                        #pragma unroll
                        for (int k = -RADIUS_Z; k <= RADIUS_Z; ++k) {
                            const int slice = mirror_place(z_start + z + k, length_z) - z_start;
                            const int other = mirror_place(z_start + z + dz + k, length_z) - z_start;
                            const size_t channel = (c + max(first_level, 0)) * size;
                            __global const float *a = compared + channel + ((size_t)t * snz + slice) * plane + here;
                            __global const float *b = compared + channel + ((size_t)(t + dt) * snz + other) * plane + here;
                            b += dy * pitch;
                            const bool only = COMPARED == 1 && RADIUS_Z == 0;
                            const bool begins = c == 0 && k == -RADIUS_Z;
                            const float unit = (COMPARED > 1 ? units[c] : 1.0f) * (GAUSSIAN ? taps[PATCH + RADIUS_Z + k] : 1.0f);
                            #pragma unroll
                            for (int i = 0; i < 4; ++i) {
                                float differences[REACHED], found[ROWS];
                                #pragma unroll
                                for (int row = 0; row < REACHED; ++row)
                                    differences[row] = b[row * pitch + columns_at[i]]
                                                       - (HELD ? own[row][i] : a[row * pitch + i * quarter]);
                                column_sums(differences, taps, found);
                                #pragma unroll
                                for (int j = 0; j < ROWS; ++j) {
                                    const float before = begins ? 0.0f : columns[j][BESIDE + i];
                                    columns[j][BESIDE + i] = only ? found[j] : fma(found[j], unit, before);
                                    centres[j][i] = differences[j + RADIUS];
                                }
                            }
                        }
#if NVIDIA
                    #pragma unroll
                    for (int j = 0; j < ROWS; ++j)
                        #pragma unroll
                        for (int i = BESIDE - RADIUS; i < BESIDE; ++i) {
                            const int far = HALO - i / 4, to = BESIDE + 3 + BESIDE - i;
                            columns[j][i] = from_left(columns[j][BESIDE + i % 4], far);
                            columns[j][to] = from_right(columns[j][BESIDE + to % 4], far);
                        }
#else
                    turn = 1 - turn;
                    #pragma unroll
                    for (int j = 0; j < ROWS; ++j)
                        #pragma unroll
                        for (int i = 0; i < 4; ++i)
                            shared[turn][get_local_id(1)][j][i][lane] = columns[j][BESIDE + i];
                    // The other half is free: all have read it before they came here last.
                    barrier(CLK_LOCAL_MEM_FENCE);
                    #pragma unroll
                    for (int j = 0; j < ROWS; ++j)
                        #pragma unroll
                        for (int i = BESIDE - RADIUS; i < BESIDE; ++i) {
                            const int far = HALO - i / 4, to = BESIDE + 3 + BESIDE - i;
                            columns[j][i] = shared[turn][get_local_id(1)][j][i % 4][max(lane - far, 0)];
                            columns[j][to] = shared[turn][get_local_id(1)][j][to % 4][min(lane + far, ITEMS - 1)];
                        }
#endif
                    __global const float *there = spread + ((size_t)(t + dt) * snz + z + dz) * plane + here + dy * pitch;
                    #pragma unroll
                    for (int j = 0; j < ROWS; ++j) {
                        float distances[4];
                        row_sums(columns[j], taps, distances);
                        #pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            const float distance = SIGMA_MAP ? distances[i] * factors[j][i] : distances[i];
                            const float weight = weight_of(distance, COMPARED > 1 ? 1.0f : units[0], start);
                            totals[j][i] += weight;
                            if (OWN_MAX)
                                most[j][i] = fmax(most[j][i], weight);
                            if (COUNTS)
                                sums[0][j][i] = fma(weight, weight, sums[0][j][i]);
                            else if (CHANNELS == 1 && RADIUS_Z == 0 && !APART)
                                sums[0][j][i] = fma(weight, centres[j][i], sums[0][j][i]);
                            else
                                #pragma unroll
                                for (int c = 0; c < CHANNELS; ++c) {
                                    const size_t at = c * size + (j + RADIUS) * pitch;
                                    const float difference = there[at + columns_at[i]] - mine[at + i * quarter];
                                    sums[c][j][i] = fma(weight, difference, sums[c][j][i]);
                                }
                        }
                    }
                }
            }

    if (lane < HALO || lane >= ITEMS - HALO)
        return;
    #pragma unroll
    for (int j = 0; j < ROWS; ++j)
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int to_y = y + j - skip, to_x = x + i - skip_x;
            if (to_y < 0 || to_y >= ny || to_x < 0 || to_x >= nx)
                continue;
            const float own_weight = OWN_MAX && most[j][i] > 0.0f ? most[j][i] : 1.0f;
            const float total = totals[j][i] + own_weight;
            #pragma unroll
            for (int c = 0; c < CHANNELS; ++c) {
                const float value = COUNTS ? total * total / fma(own_weight, own_weight, sums[0][j][i])
                                           : mine[c * size + (j + RADIUS) * pitch + i * quarter] + sums[c][j][i] / total;
                out[(((size_t)c * frames_out + first_out + frame) * ny + to_y) * nx + to_x] = value;
            }
        }
}
