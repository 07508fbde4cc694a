// Filters groups of similar cubes on a GPU: transform of the cubes and along the stack, hard threshold or Wiener filter, inverse,
// weighted addition to the sums of the volume.
//
// Reference: Maggioni et al. 2013, section III; Makinen, Azzari and Foi 2020, section III, for the noise that cubes share.
// Grid: (TEAM, references along x times y, volumes times layers); a work-group of TEAM items holds one group.
//   1. An item loads a quarter of a cube, the columns x = q, q + 4 over all (z, y), and transforms it along y and z.
//   2. Through local memory it gets whole lines along x and transforms them.
//   3. Through local memory it gets whole stacks of CUBE / TEAM coefficients, which it shrinks. Then back.
// Constants: those of cubes.h, NEIGHBOURS, INDEX_BITS, TRANSFORM, STACK, WIENER, SHARED_NOISE, SPECTRUM, SHARE_Z, SHARE_Y,
//   SHARE_X, SIGMA_MAP, BEFORE, AFTER, TEAM (32 or 64), LINE (length of a cube in local memory, padded).
// Shapes: noisy, basic (volumes, pnz, pny, pitch); keys as search_cubes writes them; levels (volumes, slices): sigma of every
//   slice, `first_slice` the first one of the tile; kaiser (CUBE); correlation as in cube_groups.h; sums, weights (volumes, pnz,
//   pny, pitch), of the volumes from v0 on: whole numbers, see shrinkage.h: a sum is in units of the sigma of its slice over `scale`.
// Cost of a group of n: 64 n additions to the sums, n to the weights; (3 with WIENER, else 2) * 64 n values transformed.

typedef float REAL;
#include "bm4d/cube_groups.h"
#include "bm4d/cube_team.h"
#include "bm4d/team_pairs.h"

#define STACKS (CUBE / TEAM)

__kernel __attribute__((reqd_work_group_size(TEAM, 1, 1)))
void shrink_cubes(GROUP_ARGUMENTS)
{
    __local float cubes[NEIGHBOURS * LINE];
    __local int4 place[NEIGHBOURS];
    __local float noise[NEIGHBOURS] __attribute__((aligned(16)));
    __local CODE codes[CODES] __attribute__((aligned(16)));
    __local int counts[COUNTS] __attribute__((aligned(16)));
    __local uchar list[LISTED] __attribute__((aligned(16)));
    __local uint occurs[2];
    __local float parts[TEAM] __attribute__((aligned(16)));
#if TIMES > 1
    __local int4 moved[TIMES];
    __local float share[TIMES];
    __local float2 noises[NEIGHBOURS];
#endif

#if WIENER
    __global const float *guide = basic;
#else
    __global const float *guide = noisy;
#endif
    const int item = get_local_id(0);
    const int column = get_global_id(1) % columns;
    const int row = get_global_id(1) / columns;
    const int volume = get_global_id(2) / layers;
    const int layer = get_global_id(2) % layers;
    const size_t plane = (size_t)pny * pitch;
    REFERENCE_CUBE
    // The matches. The reference itself always is the first, even where its values are no numbers.
    if (item < NEIGHBOURS) {
        const uint key = keys[first_key + (size_t)item * columns];
        const bool alike = item == 0 || (key < FAR_KEY && key_distance(key) <= limit);
        const int4 offset = match_offset(offsets, key);
        place[item] = offset;
        const float s = alike ? CUBE_SIGMA(slice_sigma, z + offset.y, y + offset.z, x + offset.w) : -1.0f;
        noise[item] = s;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    // The largest power of two of those found, which come first.
    int size = 1;
    #pragma unroll
    for (int most = 2; most <= NEIGHBOURS; most *= 2)
        size = noise[most - 1] >= 0.0f ? most : size;
    float variance = 0.0f;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        variance += k < size ? noise[k] * noise[k] : 0.0f;
    const float sigma = sqrt(variance / size);
#if TIMES > 1
    // What is used of each time, and the noise in A and E.
    const int block = BLOCK_OF(z, y, x);
    __global const float *compared = guide + corner_there;
    const float precision = PRECISION(own_sigma);
    float precisions = precision;
    #pragma unroll 1
    for (int t = 0; t < TIMES; ++t) {
        const bool there = t != BEFORE && t - BEFORE >= earliest && t - BEFORE <= latest;
        const int4 way = there ? motion[(v0 + t - BEFORE) * blocks_z * blocks_y * blocks_x + block] : (int4)(0);
        const int4 at = MOVED((int4)(0), way);
        __global const float *other = compared + (t - BEFORE) * (long)deep + at.y * (long)plane + at.z * pitch + at.w;
        parts[item] = there ? part_of_difference(compared, other, plane, pitch, item) : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        float d2 = 0.0f;
        for (int k = 0; k < TEAM; ++k)
            d2 += parts[k];
        const float s = there ? CUBE_SIGMA(slice_sigma + (t - BEFORE) * slices, z + at.y, y + at.z, x + at.w) : 0.0f;
        const bool used = s > 0.0f && way.x == 0 && d2 <= similar_next * 0.5f * (own_sigma * own_sigma + s * s);
        const float part = t == BEFORE ? precision : used ? PRECISION(s) : 0.0f;
        precisions += t == BEFORE ? 0.0f : part;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item == 0) {
            moved[t] = way;
            share[t] = part;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const int images = precisions > precision ? 2 : 1;
    for (int t = item; t < TIMES; t += TEAM)
        share[t] /= precisions;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < size)
        noises[item] = noise_over_time(place[item], moved, share, slice_sigma, slices, z, y, x, nz, ny, nx MAP_NAMES);
    barrier(CLK_LOCAL_MEM_FENCE);
    float2 both = (float2)(0.0f);
    for (int k = 0; k < size; ++k)
        both += noises[k];
    both = sqrt(both / size);
#endif
    const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
    const float level = noisy[corner_there];
    const float gain = stack_gain(size);
    if (SHARED_NOISE) {
        clear_counts(counts, occurs, item);
        barrier(CLK_LOCAL_MEM_FENCE);
        count_pairs(codes, counts, occurs, place, item, size);
        barrier(CLK_LOCAL_MEM_FENCE);
        list_codes(list, counts, occurs, item);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    correlation = SPECTRUM_OF(correlation, volume);
    float all_variances[STACKS * NEIGHBOURS];
    #pragma unroll
    for (int s = 0; s < STACKS; ++s)
        variances_of_stack(all_variances + s * NEIGHBOURS, codes, (__local const float *)counts, list, occurs,
                           correlation + s * TEAM + item, size);

    // With WIENER the shares that are removed are known before the noisy spectra are loaded: fewer registers hold it all.
    float sum = 0.0f;
    float shares[WIENER ? STACKS * NEIGHBOURS : 1];
#if TIMES > 1
    // What is removed from A and E together, in units of sigma.
    float total[STACKS * NEIGHBOURS] = {0.0f};
    #pragma unroll 1
    for (int image = 0; image < images; ++image) {
    const float ratio = (image ? both.y : both.x) * inverse;
    const int mean = image ? CUBE : 0;  // E has none that is kept
    float part_sum = 0.0f;
#else
    const int mean = 0;
#define part_sum sum
#endif
    #pragma unroll 1
    for (int guides = WIENER; guides >= 0; --guides) {
        __global const float *voxels = guides ? guide : noisy;
        // The spectra.
        barrier(CLK_LOCAL_MEM_FENCE);
#if TIMES > 1
        load_columns(cubes, place, voxels + corner_there, plane, pitch, image ? 0.0f : level,
                     1.0f / max(image ? both.y : both.x, SMALLEST_SIGMA), item, size,
                     moved, share, image, deep, nz, ny, nx, z, y, x);
#else
        load_columns(cubes, place, voxels + corner_there, plane, pitch, level, inverse, item, size);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        rows_forward(cubes, item, size);
        barrier(CLK_LOCAL_MEM_FENCE);

        #pragma unroll
        for (int s = 0; s < STACKS; ++s) {
            const int coefficient = s * TEAM + item;
            float stack[NEIGHBOURS];
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k)
                stack[k] = k < size ? cubes[k * LINE + coefficient] : 0.0f;
            stack_forward(stack, size);
            const float *variances = all_variances + s * NEIGHBOURS;
            if (guides) {
                // The mean of the group is always kept: it is the grey level.
                if (coefficient == mean)
                    stack[0] = INFINITY;
                #pragma unroll
                for (int k = 0; k < NEIGHBOURS; ++k) {
                    const float share = k < size ? removed_share(stack[k], threshold, gain * variances[k], &part_sum) : 0.0f;
                    shares[WIENER ? s * NEIGHBOURS + k : 0] = share;
                }
                continue;
            }
            if (!WIENER && coefficient == mean) {
                stack[0] = 0.0f;
                part_sum += threshold > 0.0f ? gain * variances[0] : 0.0f;
            }
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k) {
                if (WIENER)
                    stack[k] *= shares[WIENER ? s * NEIGHBOURS + k : 0];
                else if (k < size)
                    stack[k] = removed_hard(stack[k], threshold, gain * variances[k], &part_sum);
            }
#if TIMES > 1
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k) {
                total[s * NEIGHBOURS + k] = fma(ratio, stack[k], total[s * NEIGHBOURS + k]);
                stack[k] = total[s * NEIGHBOURS + k];
            }
            if (image + 1 < images)
                continue;
#endif
            stack_inverse(stack, size);
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k)
                if (k < size)
                    cubes[k * LINE + coefficient] = stack[k];
        }
    }
#if TIMES > 1
    sum = fma(ratio * ratio, part_sum, sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    parts[item] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    // In the same order in every run; four sums at a time take less time.
    float4 sums_of_parts = (float4)(0.0f);
    #pragma unroll
    for (int k = 0; k < TEAM / 4; ++k)
        sums_of_parts += ((__local const float4 *)parts)[k];
    sum = sums_of_parts.x + sums_of_parts.y + sums_of_parts.z + sums_of_parts.w;
    const int weight = group_units(sum / (gain * mean_variance(correlation)), units);
    const float factor = weight / units * scale / gain * sigma;

    rows_inverse(cubes, item, size);
    barrier(CLK_LOCAL_MEM_FENCE);
    add_cubes(cubes, place, corner, plane, pitch, slice_sigma + z, kaiser, factor, largest, weight, sums, weights, item, size);
}
