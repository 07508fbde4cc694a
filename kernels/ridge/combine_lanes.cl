// Does what combine_groups does, but on a CPU: a work-item takes whole groups, with rows of the matrix as vectors.
//
// Reference: methods page, "ridge combinations".
// Grid: every second block of BLOCK_Z x BLOCK_Y x BLOCK_X references along each axis, (x, y, volumes * z), from (first_block_z,
//   first_block_y, first_block_x) on. With blocks large enough these share no pixel, and add to the sums without atomics. With VIDEO
//   (x, y, channels): those of frame `first_block_z` of `deep`.
// Constants: those of combine_groups but LINE; LANES (4, 8, 16), which divides NEIGHBOURS; BLOCK_Z, BLOCK_Y, BLOCK_X.
// Shapes: as in combine_groups.
// Cost of a group: as there, with plain additions.

#include "common/match_key.h"
#include "common/lanes.h"
#if VIDEO
#include "common/frame_ring.h"
#include "common/place_code.h"
#endif
#include "ridge/groups.h"

#define VECTORS (NEIGHBOURS / LANES)
#define FLOATS(pointer) ((float *)(pointer))

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

// Replaces a positive definite matrix by its inverse times -1, by sweeps. Without rounding no pivot is less than the noise.
static inline void invert(real *q, const real *noise)
{
    for (int s = 0; s < NEIGHBOURS; ++s) {
        real pivot[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            pivot[v] = q[s * VECTORS + v];
        const float one_over = 1.0f / max(FLOATS(q + s * VECTORS)[s], ((const float *)noise)[s]);
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
                            PLACE_ARGUMENTS, MAP_ARGUMENTS
                            float least, float scale, float largest, float units, __global int *sums WEIGHTS_ARGUMENT,
                            int first_block_z, int first_block_y, int first_block_x, int deep)
{
    real q[NEIGHBOURS * VECTORS], patches[PIXELS * VECTORS];
    Match matches[NEIGHBOURS];
    // The blocks of a launch with VIDEO are those of one frame, so that they share no pixel.
    const int image = VIDEO ? (int)get_global_id(2) * deep + first_block_z : (int)get_global_id(2) / deep;
    const int layer0 = VIDEO ? 0 : (2 * ((int)get_global_id(2) % deep) + first_block_z) * BLOCK_Z;
    const int row0 = (2 * get_global_id(1) + first_block_y) * BLOCK_Y;
    const int column0 = (2 * get_global_id(0) + first_block_x) * BLOCK_X;
    for (int number = 0; number < BLOCK_Z * BLOCK_Y * BLOCK_X; ++number) {
        const int layer = layer0 + number / (BLOCK_Y * BLOCK_X);
        const int row = row0 + number / BLOCK_X % BLOCK_Y;
        const int column = column0 + number % BLOCK_X;
        if (layer >= LAYERS || row >= rows || column >= columns)
            continue;
        const Group group = group_at(PLACE_NAMES, MAP_NAMES image, layer, row, column);
        if (!(group.sigma > 0.0f))
            continue;
        const float inverse = 1.0f / group.sigma;
        for (int j = 0; j < NEIGHBOURS; ++j)
            matches[j] = match_of(group, PLACE_NAMES, MAP_NAMES j);
        __global const float *y = noisy + group.origin, *x = estimate + group.origin, *z = begun + group.origin;
        __global const float *reference = x + matches[0].place;
        __global int *added = sums + group.sums, *weighed = WEIGHTS + group.sums;

        // The estimate of the group, and how much noise remains in it.
        float first = 0.0f, second = 0.0f, count = 0.0f;
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            float *line = FLOATS(patches + p * VECTORS);
            for (int j = 0; j < NEIGHBOURS; ++j) {
                const Match one = matches[j];
                const int at = max(one.place, 0) + ahead;
                const float value = fma(x[at], one.scale, one.shift) - reference[ahead];
                line[j] = one.place < 0 ? 0.0f : value * inverse;
#if CHAIN
                const float removed = (y[at] - z[at]) * one.scale * inverse * rsqrt(one.factor);
                first += one.place < 0 ? 0.0f : removed;
                second += one.place < 0 ? 0.0f : removed * removed;
                count += one.place < 0 ? 0.0f : 1.0f;
#endif
            }
        }
        float remaining = 1.0f;
#if CHAIN
        remaining = remaining_noise(first, second, count, least);
#endif
        const float energy = PIXELS * remaining * remaining;
        for (int k = 0; k < NEIGHBOURS * VECTORS; ++k)
            q[k] = (real)0.0f;
        real noise[VECTORS];
        for (int j = 0; j < NEIGHBOURS; ++j)
            FLOATS(noise)[j] = energy * matches[j].factor;
        add_products(q, patches);
        for (int j = 0; j < NEIGHBOURS; ++j)
            FLOATS(q + j * VECTORS)[j] = fma(FLOATS(q + j * VECTORS)[j], DIAGONAL, FLOATS(noise)[j]);
        invert(q, noise);

        // The combinations, transposed, and the variance that they leave.
        real sum[VECTORS], variance[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            sum[v] = variance[v] = (real)0.0f;
        for (int i = 0; i < NEIGHBOURS; ++i)
            for (int v = 0; v < VECTORS && matches[i].place >= 0; ++v)
                sum[v] -= q[i * VECTORS + v];
        float total = 0.0f;
        for (int j = 0; j < NEIGHBOURS; ++j) {
            if (matches[j].place < 0)
                FLOATS(sum)[j] = 0.0f;
            total += FLOATS(sum)[j];
        }
        for (int i = 0; i < NEIGHBOURS; ++i) {
            const float shared_part = FLOATS(sum)[i] / total;
            const float factor = matches[i].place < 0 ? 0.0f : matches[i].factor;
            for (int v = 0; v < VECTORS; ++v)
                q[i * VECTORS + v] = noise[v] * fma((real)shared_part, sum[v], q[i * VECTORS + v]);
            FLOATS(q + i * VECTORS)[i] += 1.0f;
            for (int v = 0; v < VECTORS; ++v)
                variance[v] = fma(q[i * VECTORS + v] * q[i * VECTORS + v], (real)factor, variance[v]);
        }

        // What is combined, less the estimate of the reference.
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            float *line = FLOATS(patches + p * VECTORS);
            for (int j = 0; j < NEIGHBOURS; ++j) {
                const Match one = matches[j];
                const float value = fma(z[max(one.place, 0) + ahead], one.scale, one.shift) - reference[ahead];
                line[j] = one.place < 0 ? 0.0f : value * inverse;
            }
        }
        int weight[NEIGHBOURS], partly[NEIGHBOURS];
        for (int j = 0; j < NEIGHBOURS; ++j) {
            weight[j] = matches[j].place < 0 ? 0 : patch_weight(FLOATS(variance)[j], units);
            partly[j] = KEPT ? convert_int_rte(weight[j] * (least / remaining)) : 0;
            if (matches[j].added >= 0) {
                weighed[matches[j].added] += weight[j];
#if KEPT
                weighed[matches[j].added + group.stride] += partly[j];
#endif
            }
        }
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            const float *line = FLOATS(patches + p * VECTORS);
            real combined[VECTORS];
            for (int v = 0; v < VECTORS; ++v)
                combined[v] = (real)0.0f;
            for (int i = 0; i < NEIGHBOURS; ++i)
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    combined[v] = fma((real)line[i], q[i * VECTORS + v], combined[v]);
            for (int j = 0; j < NEIGHBOURS; ++j) {
                const Match one = matches[j];
                const float here = one.added < 0 ? 0.0f : NOISE_AT(one.place, one.noise, p);
                if (!(here > 0.0f))
                    continue;
                const float old = fma(x[one.place + ahead], one.scale, one.shift) - reference[ahead];
                const float change = scale / units * fma(FLOATS(combined)[j], group.sigma, -old) / here;
                __global int *to = added + one.added + ahead;
                *to += convert_int_rte(clamp(weight[j] * change, -largest, largest));
#if KEPT
                to[group.stride] += convert_int_rte(clamp(partly[j] * change, -largest, largest));
#endif
            }
        }
    }
}
