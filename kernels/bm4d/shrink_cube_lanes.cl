// Filters groups of similar cubes as shrink_cubes does, but on a CPU: one work-item takes the groups of a block of references, one
// after another. Eight cubes are transformed side by side, in the lanes of vectors; then eight coefficients of all cubes.
//
// Reference: as in shrink_cubes.
// Grid: every second block of BLOCK_X, BLOCK_Y, BLOCK_Z references along each axis, beginning with number (first_block_x, first_block_y,
//   first_block_z), the volumes along z. The blocks of one launch reach no common voxel, so that nothing is added atomically.
// Constants: those of shrink_cubes up to AFTER; BLOCK_X, BLOCK_Y, BLOCK_Z.
// Shapes, cost: as in shrink_cubes, without atomic additions.

#include "common/float8_rows.h"
typedef float8 REAL;
#include "bm4d/cube_groups.h"
#include "bm4d/cube_lanes.h"

// Turns the stacks of v into the part that is removed, the mean of the group being kept or not; returns the variance of the noise that remains.
static inline float shrink_stacks(float8 *v, float8 *basic, const CODE *codes, const int *counts,
                                  __global const float *correlation, int size, float gain, float threshold, bool keep_mean)
{
    float8 sum = (float8)0.0f;
    for (int r = 0; r < ROWS; ++r) {
        float8 *stack = v + r * NEIGHBOURS;
        float8 *guide = basic + r * NEIGHBOURS;
        float8 variances[NEIGHBOURS];
        const float8 alone = VARIANCES_ALONE(correlation + 8 * r);
        for (int k = 0; k < NEIGHBOURS; ++k)
            variances[k] = alone;
        if (SHARED_NOISE) {
            for (int stride = 1; stride < size; stride *= 2) {
                for (int k = 0; k < size; k += 2 * stride) {
                    float8 across = (float8)0.0f;
                    if (stride < COUNTED_STRIDE) {
                        const CODE *block = codes + pair_place(k, k + stride);
                        for (int pair = 0; pair < stride * stride; ++pair)
                            if (block[pair] != APART)
                                across += ROW(correlation + block[pair] * CUBE + 8 * r);
                    } else {
                        const int *block = counts + counted_block(stride, k) * CUBE;
                        for (int code = 0; code < CUBE; ++code)
                            if (block[code])
                                across += (float)block[code] * ROW(correlation + code * CUBE + 8 * r);
                    }
                    variances[k + stride] = across;
                }
            }
            variances_of_sums(variances, size, alone);
        }
        for (int k = size; k < NEIGHBOURS; ++k)
            stack[k] = (float8)0.0f;
        stack_forward(stack, size);
        if (WIENER) {
            for (int k = size; k < NEIGHBOURS; ++k)
                guide[k] = (float8)0.0f;
            stack_forward(guide, size);
        }
        // The mean of the group is always kept: it is the grey level.
        if (r == 0 && keep_mean) {
            if (WIENER) {
                guide[0].s0 = INFINITY;
            } else {
                stack[0].s0 = 0.0f;
                sum.s0 += threshold > 0.0f ? gain * variances[0].s0 : 0.0f;
            }
        }
        for (int k = 0; k < size; ++k) {
            if (WIENER)
                stack[k] = removed_wiener(stack[k], guide[k], threshold, gain * variances[k], &sum);
            else
                stack[k] = removed_hard(stack[k], threshold, gain * variances[k], &sum);
        }
        stack_inverse(stack, size);
    }
    return lanes_sum(sum);
}

__kernel void shrink_cube_lanes(GROUP_ARGUMENTS, int first_block_z, int first_block_y, int first_block_x, int deep)
{
    const int volume = get_global_id(2) / deep;
    const int layer0 = (2 * (get_global_id(2) % deep) + first_block_z) * BLOCK_Z;
    const int row0 = (2 * get_global_id(1) + first_block_y) * BLOCK_Y;
    const int column0 = (2 * get_global_id(0) + first_block_x) * BLOCK_X;
    const size_t plane = (size_t)pny * pitch;
    correlation = SPECTRUM_OF(correlation, volume);

    for (int reference = 0; reference < BLOCK_Z * BLOCK_Y * BLOCK_X; ++reference) {
        const int layer = layer0 + reference / (BLOCK_Y * BLOCK_X);
        const int row = row0 + reference / BLOCK_X % BLOCK_Y;
        const int column = column0 + reference % BLOCK_X;
        if (layer >= layers || row >= rows || column >= columns)
            continue;
        REFERENCE_CUBE
        // The matches. The reference itself always is the first, even where its values are no numbers.
        int4 place[NEIGHBOURS];
        long there[NEIGHBOURS];
        int found = 0;
        for (; found < NEIGHBOURS; ++found) {
            const uint key = keys[first_key + (size_t)found * columns];
            if (found > 0 && (key >= FAR_KEY || key_distance(key) > limit))
                break;
            const int4 offset = match_offset(offsets, key);
            place[found] = offset;
            there[found] = offset.y * (long)plane + offset.z * pitch + offset.w;
        }
        const int size = 1 << (31 - clz(found));
        float variance = 0.0f;
        for (int k = 0; k < size; ++k) {
            const float s = CUBE_SIGMA(slice_sigma, z + place[k].y, y + place[k].z, x + place[k].w);
            variance += s * s;
        }
        const float sigma = sqrt(variance / size);
        const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
        const float level = noisy[corner_there];
        const float gain = stack_gain(size);
        CODE codes[SHARED_NOISE ? CODES : 1];
        int counts[SHARED_NOISE ? COUNTED_BLOCKS * CUBE : 1];
        if (SHARED_NOISE)
            count_pairs(codes, counts, place, size);

        float8 v[ROWS * NEIGHBOURS];
        float8 b[WIENER ? ROWS * NEIGHBOURS : 1];
#if TIMES > 1
#if WIENER
        __global const float *compared = basic + corner_there;
#else
        __global const float *compared = noisy + corner_there;
#endif
        // What is used of each time, and the noise in A and E.
        const int block = BLOCK_OF(z, y, x);
        const float precision = PRECISION(own_sigma);
        float precisions = precision;
        int4 moved[TIMES];
        float share[TIMES];
        for (int t = 0; t < TIMES; ++t) {
            moved[t] = (int4)(0);
            share[t] = t == BEFORE ? precision : 0.0f;
            if (t == BEFORE || t - BEFORE < earliest || t - BEFORE > latest)
                continue;
            moved[t] = motion[(v0 + t - BEFORE) * blocks_z * blocks_y * blocks_x + block];
            const int4 at = MOVED((int4)(0), moved[t]);
            __global const float *other = compared + (t - BEFORE) * (long)deep + at.y * (long)plane + at.z * pitch + at.w;
            float8 squares = (float8)0.0f;
            for (int r = 0; r < ROWS; ++r) {
                const float8 difference = load_row(compared + IN_VOLUME(r), pitch) - load_row(other + IN_VOLUME(r), pitch);
                squares += difference * difference;
            }
            const float s = CUBE_SIGMA(slice_sigma + (t - BEFORE) * slices, z + at.y, y + at.z, x + at.w);
            if (s > 0.0f && moved[t].x == 0 && lanes_sum(squares) <= similar_next * 0.5f * (own_sigma * own_sigma + s * s)) {
                share[t] = PRECISION(s);
                precisions += share[t];
            }
        }
        const int images = precisions > precision ? 2 : 1;
        float squares[2] = {0.0f, 0.0f};
        for (int t = 0; t < TIMES; ++t) {
            share[t] /= precisions;
            if (share[t] == 0.0f)
                continue;
            const float rest = t == BEFORE ? 1.0f - share[t] : share[t];
            for (int k = 0; k < size; ++k) {
                const int4 at = MOVED(place[k], moved[t]);
                const float s = CUBE_SIGMA(slice_sigma + (t - BEFORE) * slices, z + at.y, y + at.z, x + at.w);
                squares[0] += share[t] * share[t] * s * s;
                squares[1] += rest * rest * s * s;
            }
        }
        float8 part[ROWS * NEIGHBOURS];
        float sum = 0.0f;
        for (int image = 0; image < images; ++image) {
            const float noise = sqrt(squares[image] / size), ratio = noise * inverse;
            const float to_noise = 1.0f / max(noise, SMALLEST_SIGMA);
            for (int r = 0; r < ROWS * NEIGHBOURS; ++r)
                part[r] = (float8)0.0f;
            load_over_time(part, noisy + corner_there, place, moved, share, image, deep, plane, pitch, nz, ny, nx, z, y, x,
                           image ? 0.0f : level, to_noise, size);
#if WIENER
            load_over_time(b, basic + corner_there, place, moved, share, image, deep, plane, pitch, nz, ny, nx, z, y, x,
                           image ? 0.0f : level, to_noise, size);
#endif
            sum += ratio * ratio * shrink_stacks(part, b, codes, counts, correlation, size, gain, threshold, image == 0);
            for (int r = 0; r < ROWS * NEIGHBOURS; ++r)
                v[r] = image ? v[r] + ratio * part[r] : ratio * part[r];
        }
#else
        load_cubes(v, noisy + corner_there, there, plane, pitch, level, inverse, size);
#if WIENER
        load_cubes(b, basic + corner_there, there, plane, pitch, level, inverse, size);
#endif
        const float sum = shrink_stacks(v, b, codes, counts, correlation, size, gain, threshold, true);
#endif
        const int weight = group_units(sum / (gain * mean_variance(correlation)), units);
        const float factor = weight / units * scale / gain * sigma;

        for (int k0 = 0; k0 < size; k0 += 8) {
            float8 cubes[CUBE];
            for (int r = 0; r < ROWS; ++r) {
                for (int k = 0; k < 8; ++k)
                    cubes[8 * r + k] = k0 + k < size ? v[r * NEIGHBOURS + k0 + k] : (float8)0.0f;
                transpose(cubes + 8 * r);
            }
            cubes_inverse(cubes);
            for (int r = 0; r < ROWS; ++r)
                transpose(cubes + 8 * r);
            for (int k = 0; k < 8 && k0 + k < size; ++k) {
                __global const float *here = slice_sigma + z + place[k0 + k].y;
                __global int *first = sums + corner + there[k0 + k];
                for (int r = 0; r < ROWS; ++r) {
                    const float in_units = factor / max(here[8 * r / (CY * CX)], SMALLEST_SIGMA);
                    const float8 taken = cubes[8 * r + k] * (in_units * ROW(kaiser + 8 * r));
                    add_row(first + IN_VOLUME(r), pitch, convert_int8_rte(clamp(taken, -largest, largest)));
                }
                weights[corner + there[k0 + k]] += weight;
            }
        }
    }
}
