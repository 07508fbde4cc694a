// Filters groups of similar patches on a GPU: transforms them, shrinks their spectra, transforms the removed part back, and adds
// it up pixel by pixel.
//
// Reference: Davy and Ehret 2020, section 4.4, algorithm 6. A team of work-items holds a group in registers. Each item holds
//   a column of DEPTH patches, later a row of their spectra (team.h), then whole stacks (team_stacks.h). Beyond the paper:
//   stacks are collected by exchanges in halves, and estimates are added up as whole numbers in a tile in local memory. The
//   work-group writes that tile to global memory (a slab), and `join_slabs` gathers the slabs.
// Grid: (TEAM, TEAMS * groups, frames), `groups_x` groups side by side; a group serves GROUP_X times GROUP_Y neighbouring
//   references, TEAMS of them at once.
// Constants: PATCH = 8, STEP, WINDOW, NEIGHBOURS, INDEX_BITS, TRANSFORM, STACK, WIENER, SHARED_NOISE, SPECTRUM, SIGMA_MAP; DEPTH
//   (patches an item holds: a divisor of NEIGHBOURS, at least a quarter of it, and at least 2 where it is not all), GROUP_X,
//   GROUP_Y, TEAMS (a divisor of their product), WARP_SYNC, LINE, WIDE (team.h); LOCAL_TILE (team_spectra.h); VIDEO = 1 for
//   VBM3D: patches of many frames, sums in global memory; KALMAN (team_shrinkage.h).
// Shapes: noisy, basic (frames, padded layout, see search/pad_far); offsets, keys (matched frames) as in search_plain, which
//   all channels share: frame f has the matches of frame f % matched; levels (frames), sigma in grey levels, and the
//   same of what was matched; variation as in sigma_map.h; kaiser (8); correlation as in shared_noise.h; slabs (frames,
//   groups, TILE_Y, TILE_X) in units of sigma / scale; weights (frames, pny, pitch), by the corner of a patch.
//   With VIDEO, frames lie in rings (common/frame_ring.h): noisy, basic (channels, ring, padded layout); codes_found
//   beside keys, see common/place_code.h; levels and matched_levels are the links of every frame with those around it;
//   slabs (channels, sum_ring, 2, padded layout), sums and weights.
// Cost of a group of n: (3 with WIENER, else 2) * 16 n transforms of eight values, as many of n; 64 n additions.

#include "common/search_group.h"
typedef float REAL;
#include "bm3d/shrink_arguments.h"
#define REFERENCES (GROUP_X * GROUP_Y)
#include "bm3d/team.h"
#include "bm3d/team_stacks.h"
#include "bm3d/team_matches.h"
#include "bm3d/team_spectra.h"
#include "bm3d/team_noise.h"
#include "bm3d/team_shrinkage.h"
#include "bm3d/team_sums.h"

__kernel __attribute__((reqd_work_group_size(TEAM, TEAMS, 1)))
void shrink_shared(GROUP_ARGUMENTS)
{
    __local float scratch[TEAMS * PARTS * SCRATCH] __attribute__((aligned(16)));
    __local int places[TEAMS][NEIGHBOURS];
    __local float variances[TEAMS][SIGMA_VARIES ? NEIGHBOURS : 1];
#if VIDEO
    __local int aheads[TEAMS][NEIGHBOURS];
    __local long sums_places[TEAMS][NEIGHBOURS];
    __local float first_levels[TEAMS][NEIGHBOURS], scales[TEAMS][NEIGHBOURS], inverses[TEAMS][NEIGHBOURS];
#endif
#if SHARED_NOISE
    __local uchar codes[TEAMS][CODES] __attribute__((aligned(16)));
#endif
#if SHARED_NOISE && !SPECTRUM
    __local float correlations[(PATCH + 1) * PATCH] __attribute__((aligned(16)));
    for (int k = get_local_id(1) * TEAM + get_local_id(0); k < (PATCH + 1) * PATCH; k += ITEMS)
        correlations[k] = correlation[k];
#endif

    const int member = get_local_id(0);
    const int lane = member % 8, part = member / 8;
    const int team = get_local_id(1);
    const int item = team * TEAM + member;
    const int frame_number = get_global_id(2);
    const int group = get_group_id(1);
    const int row0 = group / groups_x * GROUP_Y;
    const int column0 = group % groups_x * GROUP_X;
    const size_t plane = (size_t)pny * pitch;
    const GroupFrame frame = group_frame(RINGS frame_number, matched, plane, levels, matched_levels);
    // Groups of a frame or a channel without noise are empty; see "One exit" in kernels/README.md.
    const bool filtered = !VIDEO || (frame.matched_sigma > 0.0f && frame.sigma > 0.0f);
#if SPECTRUM
    correlation += (first_spectrum + frame_number / spectrum_frames) * ((APART + 1) * PATCH * PATCH);
#endif
    __global const float *covariance = correlation + first_coefficient(part) * PATCH + lane;
    const int top = y0 + grid_position(row0, first_y, last_y) - WINDOW / 2;
    const int left = x0 + grid_position(column0, first_x, last_x) - WINDOW / 2;

#if LOCAL_TILE
    __local float noisy_pixels[TILE_Y * TILE_X];
    copy_pixels(noisy_pixels, TILE_Y, TILE_X, item, ITEMS, noisy + frame.first, pny, pitch, top, left);
#else
    __global const float *noisy_pixels = noisy + frame.first + (long)top * pitch + left;
#endif
#if WIENER && LOCAL_TILE > 1
    __local float basic_pixels[TILE_Y * TILE_X];
    copy_pixels(basic_pixels, TILE_Y, TILE_X, item, ITEMS, basic + frame.first, pny, pitch, top, left);
#elif WIENER
    __global const float *basic_pixels = basic + frame.first + (long)top * pitch + left;
#endif
#if !VIDEO
    __local int tile[TILE_Y * TILE_X];
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        tile[k] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    __local float *my_scratch = scratch + team * PARTS * SCRATCH + part * TURNED;
    __local float *team_scratch = scratch + team * PARTS * SCRATCH;
    const TeamMatches matches = {
        places[team], variances[team],
#if VIDEO
        aheads[team], sums_places[team], first_levels[team], scales[team], inverses[team],
#endif
    };

    for (int turn = 0; turn < REFERENCES / TEAMS; ++turn) {
        const int reference = turn * TEAMS + team;
        const bool mine = filtered && row0 + reference / GROUP_X < rows && column0 + reference % GROUP_X < columns;
        const int row = min(row0 + reference / GROUP_X, rows - 1);
        const int column = min(column0 + reference % GROUP_X, columns - 1);
        const int y = y0 + grid_position(row, first_y, last_y);
        const int x = x0 + grid_position(column, first_x, last_x);

        // The matches.
        const size_t first_key = ((size_t)(frame_number % matched) * rows + row) * NEIGHBOURS * columns + column;
        const SigmaMap map = MAP_AROUND(y, x);
        const float factor_here = sigma_factor(map, 0, 0);
        const float limit = similar * frame.matched_sigma * frame.matched_sigma * (factor_here * factor_here);
        const float level = noisy_pixels[(y - top) * NOISY_LINE + x - left];
        TEAM_SYNC();
        for (int k = member; k < NEIGHBOURS; k += TEAM) {
            const uint key = keys[first_key + (size_t)k * columns];
            const bool found = mine && key < FAR_KEY && (k == 0 || key_distance(key) <= limit);
            const int place = match_place(PLACES, first_key + (size_t)k * columns, key, found);
            keep_match(matches, k, found, place, frame, map, levels, level, pny, pitch, y, x);
        }
        TEAM_SYNC();
        const int size = group_size(matches);
        const float sigma = group_sigma(matches, frame.sigma, size);
        int4 held[DEPTH];
        #pragma unroll
        for (int d = 0; d < DEPTH; ++d)
            held[d] = place_offset(matches.places[part * DEPTH + d]);

        // Their spectra.
        const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
        const float gain = stack_gain(size);
#if SHARED_NOISE
        keep_overlaps(codes[team], (__local int *)team_scratch, matches.places, size, member);
#endif
        float across[SHARED_NOISE ? VALUES : 1];
#if SHARED_NOISE && HISTOGRAMS
        across_blocks(across, (__local const int *)team_scratch, correlations + lane,
                      correlations + first_coefficient(part));
#endif
        const bool holds_mean = member == 0;
        float v[VALUES];
#if WIENER && LOCAL_TILE != 1 && SHARED_NOISE && HISTOGRAMS && !VIDEO
        across_pairs(across, codes[team], correlations + lane, correlations + first_coefficient(part));
        // Both images by the same code: twice as much does not fit the instruction cache beside that of the shared noise. The
        // guide first: its shares take the place of the variances, and registers hold two arrays of values, not three.
        float sum = 0.0f;
        #pragma unroll 1
        for (int image = 1; image >= 0; --image) {
            NOISY_SPACE const float *pixels = image ? basic_pixels : noisy_pixels;
            LOAD_SPECTRA(v, pixels, NOISY_LINE);
            gather_stack(v, team_scratch, member);
            if (image) {
                sum = removed_parts(v, across, covariance, size, gain, threshold, common, holds_mean);
                #pragma unroll
                for (int i = 0; i < VALUES; ++i)
                    across[i] = v[i];
            }
        }
        remove_shares(v, across, size);
#else
        LOAD_SPECTRA(v, noisy_pixels, NOISY_LINE);
        gather_stack(v, team_scratch, member);
        float b[WIENER ? VALUES : 1];
#if WIENER
        LOAD_SPECTRA(b, basic_pixels, BASIC_LINE);
        gather_stack(b, team_scratch, member);
#endif
#if SHARED_NOISE && SPECTRUM
        across_pairs(across, codes[team], covariance, covariance);
#elif SHARED_NOISE
        across_pairs(across, codes[team], correlations + lane, correlations + first_coefficient(part));
#endif
        float in_common = common;
#if VIDEO && !KALMAN
        const float energy = team_sum(common_energy(v, covariance, size, holds_mean), team_scratch, member);
        in_common = common_limit(in_other_frames(matches, size), size, energy, threshold, common);
#endif
        const float sum = shrink_stacks(v, b, across, covariance, size, gain, threshold, in_common, holds_mean);
#endif
        const float total = team_sum(sum, team_scratch, member);
        scatter_stack(v, team_scratch, member);
        const float weight_gain = gain * mean_variance(correlation);
        const int weight = group_units(total / weight_gain, units);
        const float in_levels = !VIDEO && SIGMA_MAP ? sigma / frame.sigma : 1.0f;
        float factors[8];
        column_factors(factors, weight / units * in_levels * scale / gain * kaiser[lane], kaiser);
        TRANSFORM_ALL(transform_inverse, v)
        transpose(v, my_scratch, lane);
        const int changed = KALMAN ? min(size, 1) : size;
        #pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float patch_column[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                patch_column[i] = v[i * DEPTH + d];
            transform_inverse(patch_column);
            if (part * DEPTH + d < changed) {
#if VIDEO
                const long corner = matches.sums[part * DEPTH + d];
                const float here = sigma * matches.inverses[part * DEPTH + d];
                if (corner >= 0)
                    add_column(slabs + corner + lane, pitch, patch_column, here, factors, largest);
#else
                const int moved = (y - top + held[d].z) * SUM_LINE + x - left + held[d].w;
                add_column(tile + moved + lane, SUM_LINE, patch_column, 1.0f, factors, largest);
#endif
            }
        }
        // Each item adds the weight of another patch.
        for (int k = part * DEPTH + lane; k < min(changed, (part + 1) * DEPTH); k += 8) {
#if VIDEO
            if (matches.sums[k] >= 0)
                atomic_add(slabs + matches.sums[k] + plane, weight);
#else
            const int4 offset = place_offset(matches.places[k]);
            atomic_add(weights + frame.first + (size_t)(y + offset.z) * pitch + x + offset.w, weight);
#endif
        }
    }
#if !VIDEO
    barrier(CLK_LOCAL_MEM_FENCE);
    __global int *slab = slabs + ((size_t)frame_number * get_num_groups(1) + group) * (TILE_Y * TILE_X);
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        slab[k] = tile[k];
#endif
}
