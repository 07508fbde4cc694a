// Does what combine_groups does, but on a CPU: a work-item takes whole groups, with rows of the matrix as vectors.
//
// Reference: methods page, "ridge combinations".
// Grid: every second block of BLOCK_Z x BLOCK_Y x BLOCK_X references along each axis, (x, y, volumes * z), from (first_block_z,
//   first_block_y, first_block_x) on. With blocks large enough these share no pixel, and add to the sums without atomics. With VIDEO
//   (x, y, channels): those of frame `first_block_z` of `deep`.
// Constants: those of combine_groups but LINE; LANES (4, 8, 16), which divides NEIGHBOURS; BLOCK_Z, BLOCK_Y, BLOCK_X.
// Shapes: as in combine_groups.
// Cost of a group: as there, with plain additions.

#include "common/lanes.h"
#include "ridge/groups.h"
#include "ridge/vector_matrix.h"

// Fills `patches` with those of an image, less the estimate of the reference, in sigma.
#define LOAD_PATCHES(image)                                                                                    \
    for (int p = 0; p < PIXELS; ++p) {                                                                         \
        real *line = patches + p * VECTORS;                                                                    \
        const int ahead = pixel_ahead(p, ny, nx);                                                              \
        gather(line, image, place, ahead);                                                                     \
        for (int v = 0; v < VECTORS; ++v)                                                                      \
            line[v] = (fma(line[v], scales[v], shifts[v]) - reference[ahead]) * present[v];                    \
    }
#define TO_WHOLE WITH_LANES(convert_int, TO_LANES)
#define TO_LANES WITH_LANES(LANES, _rte)

__kernel void combine_lanes(COMBINED_ARGUMENTS, int first_block_z, int first_block_y, int first_block_x, int deep)
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

        // What is read of each patch, and what of it counts: arrays, so that the rest is vectors.
        int place[NEIGHBOURS];
        real scales[VECTORS], shifts[VECTORS], present[VECTORS], removing[VECTORS];
        for (int j = 0; j < NEIGHBOURS; ++j) {
            const Match one = matches[j];
            place[j] = max(one.place, 0);
            FLOATS(present)[j] = one.place < 0 ? 0.0f : inverse;
            FLOATS(scales)[j] = one.scale;
            FLOATS(shifts)[j] = one.shift;
            FLOATS(removing)[j] = one.place < 0 ? 0.0f : one.scale * inverse * rsqrt(one.factor);
        }

        // The estimate of the group, and how much noise remains in it.
        LOAD_PATCHES(x);
        real first[VECTORS], second[VECTORS];
        for (int v = 0; v < VECTORS; ++v)
            first[v] = second[v] = (real)0.0f;
        for (int p = 0; p < PIXELS && CHAIN; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            real given[VECTORS], left[VECTORS];
            gather(given, y, place, ahead);
            gather(left, z, place, ahead);
            for (int v = 0; v < VECTORS; ++v) {
                const real removed = (given[v] - left[v]) * removing[v];
                first[v] += removed;
                second[v] = fma(removed, removed, second[v]);
            }
        }
        float remaining = 1.0f;
#if CHAIN
        float total_first = 0.0f, total_second = 0.0f, count = 0.0f;
        for (int j = 0; j < NEIGHBOURS; ++j) {
            total_first += FLOATS(first)[j];
            total_second += FLOATS(second)[j];
            count += matches[j].place < 0 ? 0.0f : (float)PIXELS;
        }
        remaining = remaining_noise(total_first, total_second, count, least);
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
        LOAD_PATCHES(z);
        int weight[NEIGHBOURS], partly[NEIGHBOURS];
        for (int j = 0; j < NEIGHBOURS; ++j) {
            weight[j] = matches[j].place < 0 ? 0 : patch_weight(FLOATS(variance)[j], units);
            partly[j] = KEPT ? convert_int_rte(weight[j] * (least / remaining)) : 0;
            if (matches[j].added >= 0) {
                weighed[matches[j].added] += weight[j];
                if (KEPT)
                    weighed[matches[j].added + group.stride] += partly[j];
            }
        }
        real all[VECTORS], part[VECTORS];  // the weights, over the noise
        for (int p = 0; p < PIXELS; ++p) {
            const int ahead = pixel_ahead(p, ny, nx);
            for (int j = 0; j < NEIGHBOURS && p % (PY * PX) == 0; ++j) {
                const float here = matches[j].added < 0 ? 0.0f : NOISE_AT(place[j], matches[j].noise, p);
                const float each = here > 0.0f ? scale / units / here : 0.0f;
                FLOATS(all)[j] = weight[j] * each;
                FLOATS(part)[j] = partly[j] * each;
            }
            const float *line = FLOATS(patches + p * VECTORS);
            real combined[VECTORS], old[VECTORS];
            for (int v = 0; v < VECTORS; ++v)
                combined[v] = (real)0.0f;
            for (int i = 0; i < NEIGHBOURS; ++i)
                #pragma unroll
                for (int v = 0; v < VECTORS; ++v)
                    combined[v] = fma((real)line[i], q[i * VECTORS + v], combined[v]);
            gather(old, x, place, ahead);
            whole changes[VECTORS], parts[VECTORS];
            for (int v = 0; v < VECTORS; ++v) {
                const real before = fma(old[v], scales[v], shifts[v]) - reference[ahead];
                const real change = fma(combined[v], (real)group.sigma, -before);
                changes[v] = TO_WHOLE(clamp(change * all[v], -largest, largest));
                parts[v] = TO_WHOLE(clamp(change * part[v], -largest, largest));
            }
            for (int j = 0; j < NEIGHBOURS; ++j) {
                if (matches[j].added < 0)
                    continue;
                __global int *to = added + matches[j].added + ahead;
                *to += ((const int *)changes)[j];
                if (KEPT)
                    to[group.stride] += ((const int *)parts)[j];
            }
        }
    }
}
