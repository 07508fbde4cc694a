// Filters groups of similar patches as shrink_shared does, but on a CPU: one work-item takes a whole group, row by row of eight
// pixels as vectors, and adds straight to the sums in global memory.
//
// Reference: Davy and Ehret 2020, section 4.4.
// Grid: (groups of GROUP_X references in x, of GROUP_Y in y, frames).
// Constants: those of shrink_shared up to SIGMA_MAP, GROUP_X, GROUP_Y, KALMAN; VIDEO = 1 for VBM3D: a launch takes one reference
//   frame, `only`, and of its groups every second one along each axis. With GROUP_X and GROUP_Y large enough these share no pixel,
//   and add to the sums without atomics.
// Shapes, cost of a group: as in shrink_shared.

#include "common/float8_rows.h"
typedef float8 REAL;
#include "bm3d/shrink_arguments.h"
#include "bm3d/vector_spectra.h"
#include "bm3d/vector_noise.h"
#include "bm3d/vector_shrinkage.h"

__kernel void shrink_lanes(GROUP_ARGUMENTS
#if VIDEO
                           , int only, int parity_y, int parity_x
#endif
                           )
{
    const size_t plane = (size_t)pny * pitch;
#if VIDEO
    const int frame_number = get_global_id(2) * matched + only;
    const int row0 = (2 * get_global_id(1) + parity_y) * GROUP_Y;
    const int column0 = (2 * get_global_id(0) + parity_x) * GROUP_X;
#else
    const int frame_number = get_global_id(2);
    const int row0 = get_global_id(1) * GROUP_Y;
    const int column0 = get_global_id(0) * GROUP_X;
    const int group = get_global_id(1) * groups_x + get_global_id(0);
    const int top = y0 + grid_position(row0, first_y, last_y) - WINDOW / 2;
    const int left = x0 + grid_position(column0, first_x, last_x) - WINDOW / 2;
    const int groups = get_global_size(1) * groups_x;
    __global int *slab = slabs + ((size_t)frame_number * groups + group) * (TILE_Y * TILE_X);
    for (int k = 0; k < TILE_Y * TILE_X; ++k)
        slab[k] = 0;
#endif
    const GroupFrame frame = group_frame(RINGS frame_number, matched, plane, levels, matched_levels);
    if (VIDEO && (frame.matched_sigma <= 0.0f || frame.sigma <= 0.0f))
        return;  // nothing to filter in this frame, or in this channel
    const float8 window = ROW(kaiser);
#if SPECTRUM
    correlation += (first_spectrum + frame_number / spectrum_frames) * ((APART + 1) * PATCH * PATCH);
#endif

    for (int reference = 0; reference < GROUP_X * GROUP_Y; ++reference) {
        const int row = row0 + reference / GROUP_X;
        const int column = column0 + reference % GROUP_X;
        if (row >= rows || column >= columns)
            continue;
        const int y = y0 + grid_position(row, first_y, last_y);
        const int x = x0 + grid_position(column, first_x, last_x);
        const size_t corner = frame.first + (size_t)y * pitch + x;

        // The matches.
        const size_t first_key = ((size_t)(frame_number % matched) * rows + row) * NEIGHBOURS * columns + column;
        const SigmaMap map = MAP_AROUND(y, x);
        const float factor_here = sigma_factor(map, 0, 0);
        const float limit = similar * frame.matched_sigma * frame.matched_sigma * (factor_here * factor_here);
        int4 place[NEIGHBOURS];
        int there[NEIGHBOURS];
        Alike alike[NEIGHBOURS];
        int found = 0;
        for (; found < NEIGHBOURS; ++found) {
            const size_t at = first_key + (size_t)found * columns;
            const uint key = keys[at];
            // The reference itself always is the first, even where its values are no numbers.
            if (found > 0 && (key >= FAR_KEY || key_distance(key) > limit))
                break;
            place[found] = place_offset(match_place(PLACES, at, key, key < FAR_KEY));
            there[found] = pixels_ahead(frame, place[found], pitch);
            alike[found] = ALIKE_LINK(place[found]);
        }
        const int size = 1 << (31 - clz(found));
        float sigma = frame.sigma;
        if (SIGMA_MAP || VIDEO) {
            float variance = 0.0f;
            for (int k = 0; k < size; ++k) {
                const float s = sigma_factor(map, place[k].z, place[k].w);
                variance += PATCH_VARIANCE(s, alike[k]);
            }
            sigma = (VIDEO ? 1.0f : frame.sigma) * sqrt(variance / size);
        }

        // Their spectra.
        const float level = noisy[corner];
        const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
        const float gain = stack_gain(size);
        float8 v[8 * NEIGHBOURS];
        load_spectra(v, noisy + corner, there, alike, pitch, level, inverse, size);
        float8 b[WIENER ? 8 * NEIGHBOURS : 1];
#if WIENER
        load_spectra(b, basic + corner, there, alike, pitch, level, inverse, size);
#endif
        float8 variances[SHARED_NOISE ? 8 * NEIGHBOURS : 1];
        if (SHARED_NOISE)
            across_pairs(variances, place, correlation, size);

        float in_common = common;
#if VIDEO && !KALMAN
        int others = 0;
        for (int k = 0; k < size; ++k)
            others += place[k].x != 0;
        in_common = common_limit(others, size, common_energy(v, correlation, size), threshold, common);
#endif

        // The part that is removed, its weight, and the factor to units of the sums; kaiser is the window along one axis.
        const float8 sum = shrink_stacks(v, b, variances, correlation, size, gain, threshold, in_common);
        const float weight_gain = gain * mean_variance(correlation);
        const int weight = group_units(lanes_sum(sum) / weight_gain, units);
        const float in_levels = !VIDEO && SIGMA_MAP ? sigma / frame.sigma : 1.0f;
        const float8 factor = weight / units * in_levels * scale / gain * window;
        for (int k = 0; k < (KALMAN ? 1 : size); ++k) {
#if VIDEO
            if (place[k].x < earliest)
                continue;
            const float8 here_factor = factor * sigma / alike[k].noise;
            __global int *sums = slabs + sums_place(frame, place[k], pny, pitch, y, x);
            const int line = pitch;
            sums[plane] += weight;
#else
            const float8 here_factor = factor;
            __global int *sums = slab + (y - top + place[k].z) * TILE_X + x - left + place[k].w;
            const int line = TILE_X;
            atomic_add(weights + corner + pixels_ahead(frame, place[k], pitch), weight);
#endif
            float8 patch[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                patch[i] = v[i * NEIGHBOURS + k];
            transform_inverse(patch);
            transpose(patch);
            transform_inverse(patch);
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float8 taken = clamp(patch[i] * here_factor * kaiser[i], -largest, largest);
                *(__global UNALIGNED_INT *)(sums + i * line) += convert_int8_rte(taken);
            }
        }
    }
}
