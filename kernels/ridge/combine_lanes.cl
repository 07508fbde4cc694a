// Does what combine_groups does, but on a CPU: a work-item takes whole groups, with rows of the matrix as vectors.
//
// Reference: methods page, "ridge combinations".
// Grid: every second block of BLOCK_Z x BLOCK_Y x BLOCK_X references along each axis, (x, y, volumes * z), from (first_block_z, first_block_y,
//   first_block_x) on. With blocks large enough these share no pixel, and add to the sums without atomics.
// Constants: those of combine_groups but LINE; LANES (4, 8, 16), which divides NEIGHBOURS; BLOCK_Z, BLOCK_Y, BLOCK_X.
// Shapes and cost: as in combine_groups.

#include "common/match_key.h"
#include "common/lanes.h"
#include "ridge/groups.h"

#define VECTORS (NEIGHBOURS / LANES)
#define FLOATS(pointer) ((float *)(pointer))

typedef struct {
    int place[NEIGHBOURS];     // of the first pixel; -1 where there is no match
    float factor[NEIGHBOURS];  // of the variance of the noise, relative to the reference
    float present[NEIGHBOURS];
    int z[NEIGHBOURS];
} Group;

// Adds the products of the patches, whose pixels are rows, to `q`.
static inline void add_products(real *q, const real *patches)
{
    for (int i = 0; i < NEIGHBOURS; i += 4) {
        real sum[4][VECTORS];
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                sum[k][v] = q[(i + k) * VECTORS + v];
        for (int p = 0; p < PIXELS; ++p) {
            const float *row = (const float *)(patches + p * VECTORS);
            #pragma unroll
            for (int k = 0; k < 4; ++k)
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    sum[k][v] = fma((real)row[i + k], patches[p * VECTORS + v], sum[k][v]);
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                q[(i + k) * VECTORS + v] = sum[k][v];
    }
}

// Replaces a positive definite matrix by its inverse times -1, by sweeps.
static inline void invert(real *q, float least)
{
    for (int s = 0; s < NEIGHBOURS; ++s) {
        real pivot[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            pivot[v] = q[s * VECTORS + v];
        const float one_over = 1.0f / max(FLOATS(q + s * VECTORS)[s], least);
        for (int i = 0; i < NEIGHBOURS; ++i) {
            const float share = FLOATS(q + i * VECTORS)[s] * one_over;
            #pragma unroll
            for (int v = 0; v < VECTORS; ++v)
                q[i * VECTORS + v] = fma((real)-share, pivot[v], q[i * VECTORS + v]);
            FLOATS(q + i * VECTORS)[s] = share;
        }
        for (int v = 0; v < VECTORS; ++v)
            q[s * VECTORS + v] = pivot[v] * one_over;
        FLOATS(q + s * VECTORS)[s] = -one_over;
    }
}

__kernel void combine_lanes(__global const float *noisy, __global const float *estimate, __global const float *begun,
                            SHAPE_ARGUMENTS, MATCH_ARGUMENTS, MAP_ARGUMENTS
                            float tau, float scale, float largest, float units, __global int *sums, __global int *weights,
                            int first_block_z, int first_block_y, int first_block_x, int deep)
{
    real q[NEIGHBOURS * VECTORS], patches[PIXELS * VECTORS];
    Group group;
    const int volume = get_global_id(2) / deep;
    const int layer0 = (2 * (get_global_id(2) % deep) + first_block_z) * BLOCK_Z;
    const int row0 = (2 * get_global_id(1) + first_block_y) * BLOCK_Y;
    const int column0 = (2 * get_global_id(0) + first_block_x) * BLOCK_X;
    const size_t volume_pixels = (size_t)nz * ny * nx;
    const size_t origin = volume * volume_pixels;
    const size_t sums_at = origin * (1 + KEPT);
    levels += volume * slices + first_slice;
    for (int number = 0; number < BLOCK_Z * BLOCK_Y * BLOCK_X; ++number) {
        const int layer = layer0 + number / (BLOCK_Y * BLOCK_X);
        const int row = row0 + number / BLOCK_X % BLOCK_Y;
        const int column = column0 + number % BLOCK_X;
        if (layer >= layers || row >= rows || column >= columns)
            continue;
        const int z = reference_at(layer, STEP_Z, first_z, last_z);
        const int y = reference_at(row, STEP_Y, first_y, last_y);
        const int x = reference_at(column, STEP_X, first_x, last_x);
        const float level = levels[z + PZ / 2];
        if (!(level > 0.0f))
            continue;
        const float sigma = level * max(VARIED(y, x), 1e-2f), inverse = 1.0f / sigma;
        const int reference = (z * ny + y) * nx + x;
        __global const int4 *displacements = offsets;
        const size_t first_key = (((size_t)(volume % matched) * layers + layer) * rows + row) * NEIGHBOURS * columns + column;
        for (int j = 0; j < NEIGHBOURS; ++j) {
            const uint key = keys[first_key + (size_t)j * columns];
            // The reference itself always is the first, even where its values are no numbers.
            const bool found = j == 0 || key < FAR_KEY;
            const int4 offset = displacements[found && key < FAR_KEY ? key & INDEX_MASK : 0u];
            const int my_z = z + offset.y, my_y = y + offset.z, my_x = x + offset.w;
            const float s = levels[my_z + PZ / 2] * VARIED(my_y, my_x) * inverse;
            group.place[j] = found ? (my_z * ny + my_y) * nx + my_x : -1;
            group.factor[j] = found ? max(s * s, LEAST_FACTOR) : 1.0f;
            group.present[j] = found ? 1.0f : 0.0f;
            group.z[j] = my_z;
        }

        // The estimate of the group, and how much noise remains in it.
        float first = 0.0f, second = 0.0f, count = 0.0f;
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            const float middle = estimate[origin + reference + ahead];
            float *line = FLOATS(patches + p * VECTORS);
            for (int j = 0; j < NEIGHBOURS; ++j) {
                const size_t at = origin + max(group.place[j], 0) + ahead;
                line[j] = group.place[j] < 0 ? 0.0f : (estimate[at] - middle) * inverse;
#if CHAIN
                if (group.place[j] >= 0) {
                    const float removed = (noisy[at] - begun[at]) * inverse * rsqrt(group.factor[j]);
                    first += removed;
                    second = fma(removed, removed, second);
                    count += 1.0f;
                }
#endif
            }
        }
        float remaining = 1.0f;
#if CHAIN
        remaining = remaining_noise(first, second, count, tau);
#endif
        const float least = PIXELS * remaining * remaining;
        for (int k = 0; k < NEIGHBOURS * VECTORS; ++k)
            q[k] = (real)0.0f;
        for (int j = 0; j < NEIGHBOURS; ++j)
            FLOATS(q + j * VECTORS)[j] = least * group.factor[j];
        add_products(q, patches);
        invert(q, least * LEAST_FACTOR);

        // The combinations, transposed, and the variance that they leave.
        real sum[VECTORS], variance[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            sum[v] = variance[v] = (real)0.0f;
        for (int i = 0; i < NEIGHBOURS; ++i)
            for (int v = 0; v < VECTORS; ++v)
                sum[v] -= group.present[i] * q[i * VECTORS + v];
        float total = 0.0f;
        for (int j = 0; j < NEIGHBOURS; ++j) {
            FLOATS(sum)[j] *= group.present[j];
            total += FLOATS(sum)[j];
        }
        real noise[VECTORS];
        for (int j = 0; j < NEIGHBOURS; ++j)
            FLOATS(noise)[j] = least * group.factor[j];
        for (int i = 0; i < NEIGHBOURS; ++i) {
            const float shared_part = FLOATS(sum)[i] / total;
            const float factor = group.present[i] * group.factor[i];
            for (int v = 0; v < VECTORS; ++v)
                q[i * VECTORS + v] = noise[v] * fma((real)shared_part, sum[v], q[i * VECTORS + v]);
            FLOATS(q + i * VECTORS)[i] += 1.0f;
            for (int v = 0; v < VECTORS; ++v)
                variance[v] = fma(q[i * VECTORS + v] * q[i * VECTORS + v], (real)factor, variance[v]);
        }

        // What is combined, less the estimate of the reference.
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            const float middle = estimate[origin + reference + ahead];
            float *line = FLOATS(patches + p * VECTORS);
            for (int j = 0; j < NEIGHBOURS; ++j)
                line[j] = group.place[j] < 0 ? 0.0f : (begun[origin + group.place[j] + ahead] - middle) * inverse;
        }
        int weight[NEIGHBOURS], partly[NEIGHBOURS];
        for (int j = 0; j < NEIGHBOURS; ++j) {
            weight[j] = group.place[j] < 0 ? 0 : patch_weight(FLOATS(variance)[j], units);
            partly[j] = KEPT ? convert_int_rte(weight[j] * (tau / remaining)) : 0;
            if (group.place[j] < 0)
                continue;
            weights[sums_at + group.place[j]] += weight[j];
#if KEPT
            weights[sums_at + volume_pixels + group.place[j]] += partly[j];
#endif
        }
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            const float middle = estimate[origin + reference + ahead];
            const float *line = FLOATS(patches + p * VECTORS);
            real combined[VECTORS];
            for (int v = 0; v < VECTORS; ++v)
                combined[v] = (real)0.0f;
            for (int i = 0; i < NEIGHBOURS; ++i)
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    combined[v] = fma((real)line[i], q[i * VECTORS + v], combined[v]);
            for (int j = 0; j < NEIGHBOURS; ++j) {
                const float here = levels[group.z[j] + p / (PY * PX)];
                if (group.place[j] < 0 || !(here > 0.0f))
                    continue;
                const size_t place = group.place[j] + ahead;
                const float old = estimate[origin + place] - middle;
                const float change = scale / units * (FLOATS(combined)[j] * sigma - old) / here;
                sums[sums_at + place] += convert_int_rte(clamp(weight[j] * change, -largest, largest));
#if KEPT
                sums[sums_at + volume_pixels + place] += convert_int_rte(clamp(partly[j] * change, -largest, largest));
#endif
            }
        }
    }
}
