// Filters groups of similar patches: transforms, shrinks, transforms back, and adds up what is to be taken away.
//
// Reference: Davy and Ehret 2020, section 4.4, algorithm 6. A team of work-items holds a group in registers, each a
//   column of DEPTH patches, later a row of their spectra; they transpose through local memory. Beyond the paper: the
//   third dimension is brought into one item by exchanges in halves, and estimates are added up as whole
//   numbers in local memory, in a tile of the work-group's own (a slab), which `join_slabs` gathers.
// Grid: (TEAM, TEAMS * groups, frames), `groups_x` groups side by side; a group serves GROUP_X times GROUP_Y neighbouring
//   references, TEAMS of them at once.
// Constants: PATCH = 8, STEP, WINDOW, NEIGHBOURS, INDEX_BITS, TRANSFORM, STACK, WIENER; DEPTH (patches an item holds: a
//   divisor of NEIGHBOURS, at least a quarter of it, and at least 2 where it is not all), GROUP_X, GROUP_Y, TEAMS (a divisor
//   of their product); LOCAL_TILE (how many images are copied to local memory, the noisy one first), WARP_SYNC (a warp
//   holds whole teams, NVIDIA), LINE (values from row to row of a transposition: with 9, neither writing nor reading meets
//   one of 32 banks twice), FLOAT_SUMS (adds floats to global memory, not repeatable), SIGMA_MAP, SHARED_NOISE, SPECTRUM,
//   VIDEO (VBM3D: patches of many frames, sums in global memory).
// Shapes: noisy, basic (frames, padded layout, see search/pad_far); offsets, keys (matched frames) as in search_lanes, which
//   all channels share: frame f has the matches of frame f % matched; levels (frames), sigma in grey levels, and the
//   same of what was matched; variation (map_ny, map_pitch), whose pixel (map_y, map_x) is the padded origin; kaiser (8);
//   correlation as in shared_noise.h; slabs (frames, groups, TILE_Y, TILE_X) in units of sigma / scale; weights (frames,
//   pny, pitch), by the corner of a patch. With VIDEO, frames lie in rings (common/frame_ring.h): noisy, basic (channels, ring,
//   padded layout); codes_found beside keys, see common/place_code.h; levels and matched_levels are the links of every frame with
//   those around it; slabs (channels, sum_ring, 2, padded layout), sums and weights; a patch from before `earliest` is not added.
// Cost a group of n: (3 with WIENER, else 2) * 16 n transforms of eight values, as many of n; 64 n additions.

#include "common/patch_grid.h"
#include "common/match_key.h"
#include "common/search_group.h"
#include "common/atomic_float.h"
#if VIDEO
#include "common/frame_ring.h"
#include "common/place_code.h"
#endif
typedef float REAL;
#if LOCAL_TILE
#define NOISY_SPACE __local
#define NOISY_LINE TILE_X
#else
#define NOISY_SPACE __global
#define NOISY_LINE pitch
#endif
#if LOCAL_TILE > 1
#define BASIC_SPACE __local
#define BASIC_LINE TILE_X
#else
#define BASIC_SPACE __global
#define BASIC_LINE pitch
#endif
#include "bm3d/patch_transform.h"
#include "bm3d/stack_transform.h"
#include "bm3d/shrinkage.h"
#if SHARED_NOISE || SPECTRUM
#include "bm3d/shared_noise.h"
#endif

#define REFERENCES (GROUP_X * GROUP_Y)
#define PARTS (NEIGHBOURS / DEPTH)
#define TEAM (8 * PARTS)
// Coefficients of a patch that an item holds while stacks are transformed.
#define ROWS (8 / PARTS)
#define ITEMS (TEAM * TEAMS)
#if FLOAT_SUMS
#define SUM float
#else
#define SUM int
#endif
#define TILE_X REACHED(GROUP_X)
#define TILE_Y REACHED(GROUP_Y)
#define SCRATCH (8 * LINE)
// Sums in global memory, a pixel of the padded layout each, instead of slabs.
#define GLOBAL_SUMS (FLOAT_SUMS || VIDEO)

#if WARP_SYNC
#define TEAM_SYNC() asm volatile("bar.warp.sync 0xffffffff;" ::: "memory")
#else
#define TEAM_SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#endif

// Columns to rows and back, among the eight items of a part (algorithm 9).
static inline void transpose(float *v, __local float *scratch, int lane)
{
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        scratch[i * LINE + lane] = v[i];
    TEAM_SYNC();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        v[i] = scratch[lane * LINE + i];
}

#define VALUES (DEPTH * 8)

// Swaps halves of what two parts hold: the lower part keeps its first half and gets the other's first half.
static inline void swap_halves(float *v, __local float *scratch, int item, int other, bool lower)
{
    #pragma unroll
    for (int start = 0; start < VALUES / 2; start += 8) {
        TEAM_SYNC();
        #pragma unroll
        for (int i = start; i < start + 8; ++i)
            scratch[(i - start) * TEAM + item] = lower ? v[VALUES / 2 + i] : v[i];
        TEAM_SYNC();
        #pragma unroll
        for (int i = start; i < start + 8; ++i) {
            const float got = scratch[(i - start) * TEAM + other];
            v[VALUES / 2 + i] = lower ? got : v[VALUES / 2 + i];
            v[i] = lower ? v[i] : got;
        }
    }
}

// After `count` patches of each of two parts have come together, they lie [part][coefficient][patch]; wanted is
// [coefficient][part][patch]. Indices are constants: nothing moves but names of registers.
#define REGROUP(count, from, to)                                                          \
    {                                                                                     \
        float w[VALUES];                                                                  \
        _Pragma("unroll") for (int i = 0; i < VALUES; ++i) w[i] = v[i];                   \
        _Pragma("unroll") for (int i = 0; i < VALUES; ++i) {                              \
            const int apart = (i / (count) % 2 * (VALUES / 2)) + i / (2 * (count)) * (count) + i % (count); \
            const int together = i;                                                       \
            v[to] = w[from];                                                              \
        }                                                                                 \
    }

// From DEPTH patches with 8 coefficients each to NEIGHBOURS patches with 8 / PARTS each, and back (algorithm 10): v holds
// [coefficient][patch].
static inline void gather_stack(float *v, __local float *scratch, int item)
{
#if PARTS > 1
    swap_halves(v, scratch, item, item ^ 8, !(item & 8));
    REGROUP(DEPTH, apart, together);
#endif
#if PARTS > 2
    swap_halves(v, scratch, item, item ^ 16, !(item & 16));
    REGROUP(2 * DEPTH, apart, together);
#endif
}

static inline void scatter_stack(float *v, __local float *scratch, int item)
{
#if PARTS > 2
    REGROUP(2 * DEPTH, together, apart);
    swap_halves(v, scratch, item, item ^ 16, !(item & 16));
#endif
#if PARTS > 1
    REGROUP(DEPTH, together, apart);
    swap_halves(v, scratch, item, item ^ 8, !(item & 8));
#endif
}

// Loads column `lane` of the patches of this part and transforms them: v holds [coefficient][patch]. A macro, since the
// pixels may be in local or in global memory.
#define LOAD_SPECTRA(v, pixels, line)                                                                        \
    _Pragma("unroll") for (int d = 0; d < DEPTH; ++d) {                                                      \
        float column[8];                                                                                     \
        const int corner = (y - top) * (line) + x - left + AHEAD(d, line) + lane;                            \
        _Pragma("unroll") for (int i = 0; i < 8; ++i)                                                        \
            column[i] = part * DEPTH + d < size ? (ALIKE(d, pixels[corner + i * (line)]) - level) * inverse : 0.0f; \
        transform_forward(column);                                                                           \
        transpose(column, my_scratch, lane);                                                                 \
        transform_forward(column);                                                                           \
        _Pragma("unroll") for (int i = 0; i < 8; ++i) v[i * DEPTH + d] = column[i];                          \
    }

// How far the corner of a patch lies from that of the reference, and its pixels in the grey levels of the reference's frame.
#if VIDEO
#define AHEAD(d, line) aheads[team][part * DEPTH + d]
#define ALIKE(d, pixel) fma(pixel, scales[team][part * DEPTH + d], shifts[team][part * DEPTH + d])
#else
#define AHEAD(d, line) dy[d] * (line) + dx[d]
#define ALIKE(d, pixel) (pixel)
#endif

// First x frequency of the coefficients that a part holds of a stack.
static inline int first_coefficient(int part)
{
    return (part & 1) * 4 + (part & 2);
}

#if SHARED_NOISE
// Where the covariances of noise are read: `along_y` and `along_x` of white noise, `along_y` alone with a spectrum.
#if SPECTRUM
#define COVARIANCE __global const float
#else
#define COVARIANCE __local const float
#endif

static inline void add_pair(float *sum, uint code, COVARIANCE *along_y, COVARIANCE *along_x)
{
#if SPECTRUM
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] += along_y[code * (PATCH * PATCH) + i * PATCH];
#else
    const float y = along_y[code & ~(PATCH - 1)];
    #pragma unroll
    for (int i = 0; i < ROWS; ++i)
        sum[i] = fma(y, along_x[code % PATCH * PATCH + i], sum[i]);
#endif
}

static inline void add_four(float *sum, uint four, COVARIANCE *along_y, COVARIANCE *along_x)
{
    #pragma unroll
    for (int shift = 0; shift < 32; shift += 8)
        add_pair(sum, four >> shift & 255, along_y, along_x);
}

// Sums of covariances across the halves of each block of the stack, see variances_of_sums, for ROWS coefficients.
static inline void across_pairs(float *sums, __local const uchar *codes, COVARIANCE *along_y, COVARIANCE *along_x)
{
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
            __local const uchar *block = codes + stride_place(stride) + k / 2 * stride;
            float sum[ROWS];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                sum[i] = 0.0f;
            // Sixteen at once: their loads do not wait for each other.
            for (int pair = 0; pair + 15 < stride * stride; pair += 16) {
                const uint4 many = *(__local const uint4 *)(block + pair);
                if (any(many != FOUR_APART)) {
                    add_four(sum, many.x, along_y, along_x);
                    add_four(sum, many.y, along_y, along_x);
                    add_four(sum, many.z, along_y, along_x);
                    add_four(sum, many.w, along_y, along_x);
                }
            }
            if (stride < 4) {
                #pragma unroll
                for (int pair = 0; pair < stride * stride; ++pair)
                    add_pair(sum, block[pair], along_y, along_x);
            }
            #pragma unroll
            for (int i = 0; i < ROWS; ++i)
                sums[i * NEIGHBOURS + k + stride] = sum[i];
        }
    }
}
#define VARIANCE(k) variance[k]
#else
#define VARIANCE(k) alone
#endif

__kernel __attribute__((reqd_work_group_size(TEAM, TEAMS, 1)))
void shrink_shared(__global const float *noisy,
#if WIENER
                   __global const float *basic,
#endif
                   int pny, int pitch, int y0, int x0,
                   int first_y, int last_y, int rows, int first_x, int last_x, int columns, int groups_x,
#if VIDEO
                   int ring, int first_slot, int sum_ring, int first_sum, int frames_before, int frames_after, int earliest,
                   __global const uint *codes_found,
#else
                   __global const int4 *offsets,
#endif
                   __global const uint *keys, int matched,
                   __global const float *levels, __global const float *matched_levels,
#if SIGMA_MAP
                   __global const float *variation, int map_pitch, int map_y, int map_x,
#endif
                   float similar, float threshold, __global const float *kaiser, __global const float *correlation,
#if SPECTRUM
                   int spectrum_frames,
#endif
                   float scale, float largest, float units,
                   __global SUM *slabs
#if !VIDEO
                   , __global int *weights
#endif
                   )
{
    __local float scratch[TEAMS * PARTS * SCRATCH];
    __local int places[TEAMS][NEIGHBOURS];
#if SIGMA_MAP || VIDEO
    __local float variances[TEAMS][NEIGHBOURS];
#endif
#if VIDEO
    __local int aheads[TEAMS][NEIGHBOURS];
    __local long sum_places[TEAMS][NEIGHBOURS];
    __local float scales[TEAMS][NEIGHBOURS];
    __local float shifts[TEAMS][NEIGHBOURS];
    __local float noises[TEAMS][NEIGHBOURS];
#endif
#if SHARED_NOISE
    __local uchar codes[TEAMS][CODES] __attribute__((aligned(16)));
#if !SPECTRUM
    __local float correlations[(PATCH + 1) * PATCH] __attribute__((aligned(16)));
    for (int k = get_local_id(1) * TEAM + get_local_id(0); k < (PATCH + 1) * PATCH; k += ITEMS)
        correlations[k] = correlation[k];
#endif
#endif
#if !GLOBAL_SUMS
    __local int tile[TILE_Y * TILE_X];
#endif

    const int member = get_local_id(0);
    const int lane = member % 8;
    const int part = member / 8;
    const int team = get_local_id(1);
    const int item = team * TEAM + member;
    const int frame = get_global_id(2);
    const int group = get_group_id(1);
    const int row0 = group / groups_x * GROUP_Y;
    const int column0 = group % groups_x * GROUP_X;
    const size_t plane = (size_t)pny * pitch;
#if SPECTRUM
    correlation += frame / spectrum_frames * ((APART + 1) * PATCH * PATCH);
    __global const float *covariance = correlation + first_coefficient(part) * PATCH + lane;
#endif
#if VIDEO
    const int slot = ring_slot(first_slot, frame % matched, ring);
    const int sum_slot = ring_slot(first_sum, frame % matched, sum_ring);
    const size_t first = ((size_t)(frame / matched) * ring + slot) * plane;
    const int links_a_frame = frames_before + 1 + frames_after;
    const int centre_link = frame * links_a_frame + frames_before;
    const float level_sigma = frame_link(levels, centre_link).noise;
    const float matched_sigma = frame_link(matched_levels, frame % matched * links_a_frame + frames_before).noise;
    if (matched_sigma <= 0.0f || level_sigma <= 0.0f)
        return;  // nothing to filter in this frame, or in this channel: the whole work-group
#else
    const size_t first = frame * plane;
    const float level_sigma = levels[frame];
    const float matched_sigma = matched_levels[frame % matched];
#endif
    const int top = y0 + grid_position(row0, first_y, last_y) - WINDOW / 2;
    const int left = x0 + grid_position(column0, first_x, last_x) - WINDOW / 2;

#if LOCAL_TILE
    __local float noisy_tile[TILE_Y * TILE_X];
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        noisy_tile[k] = padded_pixel(noisy + first, pny, pitch, top + k / TILE_X, left + k % TILE_X);
#if WIENER && LOCAL_TILE > 1
    __local float basic_tile[TILE_Y * TILE_X];
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        basic_tile[k] = padded_pixel(basic + first, pny, pitch, top + k / TILE_X, left + k % TILE_X);
#endif
    NOISY_SPACE const float *noisy_pixels = noisy_tile;
#else
    NOISY_SPACE const float *noisy_pixels = noisy + first + (long)top * pitch + left;
#endif
#if WIENER && LOCAL_TILE > 1
    BASIC_SPACE const float *basic_pixels = basic_tile;
#elif WIENER
    BASIC_SPACE const float *basic_pixels = basic + first + (long)top * pitch + left;
#endif
#if !GLOBAL_SUMS
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        tile[k] = 0;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);

    __local float *my_scratch = scratch + (team * PARTS + part) * SCRATCH;
    __local float *team_scratch = scratch + team * PARTS * SCRATCH;

    for (int turn = 0; turn < REFERENCES / TEAMS; ++turn) {
        const int reference = turn * TEAMS + team;
        const bool mine = row0 + reference / GROUP_X < rows && column0 + reference % GROUP_X < columns;
        const int row = min(row0 + reference / GROUP_X, rows - 1);
        const int column = min(column0 + reference % GROUP_X, columns - 1);
        const int y = y0 + grid_position(row, first_y, last_y);
        const int x = x0 + grid_position(column, first_x, last_x);
        __global const uint *matches = keys + ((size_t)(frame % matched) * rows + row) * NEIGHBOURS * columns + column;
        float limit = similar * matched_sigma * matched_sigma;
#if SIGMA_MAP
        __global const float *centre = variation + (y + map_y + PATCH / 2) * map_pitch + x + map_x + PATCH / 2;
        limit *= *centre * *centre;
#endif
        TEAM_SYNC();
        for (int k = member; k < NEIGHBOURS; k += TEAM) {
            const uint key = matches[(size_t)k * columns];
            const bool found = mine && key < FAR_KEY && (k == 0 || key_distance(key) <= limit);
#if VIDEO
            const uint code = found ? codes_found[matches - keys + (size_t)k * columns] : 0u;
            const int4 offset = (int4)(place_t(code), 0, place_y(code), place_x(code));
            places[team][k] = found ? (int)code : INT_MIN;
            const Link link = frame_link(levels, centre_link + offset.x);
            aheads[team][k] = (ring_slot(slot, offset.x, ring) - slot) * (int)plane + offset.z * pitch + offset.w;
            sum_places[team][k] = offset.x < earliest ? -1 :
                (((long)(frame / matched) * sum_ring + ring_slot(sum_slot, offset.x, sum_ring)) * 2 * pny + y + offset.z)
                * pitch + x + offset.w;
            scales[team][k] = link.scale;
            shifts[team][k] = link.shift;
            noises[team][k] = link.noise;
            variances[team][k] = link.noise * link.noise;
#else
            // What is no match may point beyond the table.
            const int4 offset = offsets[found ? key & INDEX_MASK : 0u];
            places[team][k] = found ? (offset.z << 16) | (offset.w & 0xffff) : INT_MIN;
#endif
#if SIGMA_MAP
            const float s = found ? centre[offset.z * map_pitch + offset.w] : 0.0f;
            variances[team][k] = (VIDEO ? variances[team][k] : 1.0f) * s * s;
#endif
        }
        TEAM_SYNC();
        int found = 0;
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            found += places[team][k] != INT_MIN;
        const int size = found > 0 ? 1 << (31 - clz(found)) : 0;
        float sigma = level_sigma;
#if SIGMA_MAP || VIDEO
        float variance = 0.0f;
        for (int k = 0; k < size; ++k)
            variance += variances[team][k];
        sigma = (VIDEO ? 1.0f : level_sigma) * sqrt(variance / max(size, 1));
#endif
#if !VIDEO
        int dy[DEPTH];
        int dx[DEPTH];
        #pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            const int place = places[team][part * DEPTH + d];
            dy[d] = place >> 16;
            dx[d] = (short)(place & 0xffff);
        }
#endif
        const float level = noisy_pixels[(y - top) * NOISY_LINE + x - left];
        const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
        const float gain = stack_gain(size);
#if SHARED_NOISE
        for (int p = member; p < NEIGHBOURS - 1; p += TEAM) {
            for (int q = p + 1; q < NEIGHBOURS; ++q) {
#if VIDEO
                const uint one = places[team][p], other = places[team][q];
                const bool shared = q < size && place_t(one) == place_t(other);
                const int apart_y = place_y(one) - place_y(other);
                const int apart_x = place_x(one) - place_x(other);
#else
                const bool shared = q < size;
                const int apart_y = (places[team][p] >> 16) - (places[team][q] >> 16);
                const int apart_x = (short)(places[team][p] & 0xffff) - (short)(places[team][q] & 0xffff);
#endif
                codes[team][pair_place(p, q)] = shared ? pair_code(apart_y, apart_x) : APART;
            }
        }
#endif
        float v[DEPTH * 8];
        LOAD_SPECTRA(v, noisy_pixels, NOISY_LINE);
        gather_stack(v, team_scratch, member);
        float sum = 0.0f;
#if WIENER
        float b[DEPTH * 8];
        LOAD_SPECTRA(b, basic_pixels, BASIC_LINE);
        gather_stack(b, team_scratch, member);
#endif
#if SHARED_NOISE
        float across[VALUES];
#if SPECTRUM
        across_pairs(across, codes[team], covariance, covariance);
#else
        across_pairs(across, codes[team], correlations + lane, correlations + first_coefficient(part));
#endif
#endif
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            float *stack = v + i * NEIGHBOURS;
            stack_forward(stack, size);
#if SPECTRUM
            const float alone = covariance[i * PATCH];
#else
            const float alone = 1.0f;
#endif
#if WIENER
            float *told = b + i * NEIGHBOURS;
            stack_forward(told, size);
#endif
#if SHARED_NOISE
            float *variance = across + i * NEIGHBOURS;
            variances_of_sums(variance, size, alone);
#endif
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k) {
                // The mean of the group is kept whatever it is: a grey level is no signal to be shrunk.
                const bool mean = i == 0 && k == 0 && member == 0;
                const float noise = gain * VARIANCE(k);
#if WIENER
                stack[k] = removed_wiener(stack[k], mean ? INFINITY : told[k], threshold, noise, &sum);
#else
                stack[k] = removed_hard(stack[k], mean ? 0.0f : threshold, noise, &sum);
#endif
            }
            stack_inverse(stack, size);
        }
        TEAM_SYNC();
        team_scratch[member] = sum;
        TEAM_SYNC();
        float total = 0.0f;
        #pragma unroll
        for (int k = 0; k < TEAM; ++k)
            total += team_scratch[k];
        scatter_stack(v, team_scratch, member);
#if SPECTRUM
        const float weight_gain = gain * fmax(*correlation, LEAST_MEAN_VARIANCE);
#else
        const float weight_gain = gain;
#endif
        const int weight = group_units(total / weight_gain, units);

        // A weighted estimate in units of the sum; kaiser is the window of one axis.
#if SIGMA_MAP && !VIDEO
        const float in_levels = sigma / level_sigma;
#else
        const float in_levels = 1.0f;
#endif
        const float factor = weight / units * in_levels * scale / gain * kaiser[lane];
        #pragma unroll
        for (int d = 0; d < DEPTH; ++d) {
            float column[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                column[i] = v[i * DEPTH + d];
            transform_inverse(column);
            transpose(column, my_scratch, lane);
            transform_inverse(column);
            if (part * DEPTH + d < size) {
#if VIDEO
                const long corner = sum_places[team][part * DEPTH + d];
                if (corner >= 0) {
                    const float here = factor * sigma / noises[team][part * DEPTH + d];
                    #pragma unroll
                    for (int i = 0; i < 8; ++i)
                        atomic_add(slabs + corner + lane + i * pitch,
                                   convert_int_rte(clamp(column[i] * here * kaiser[i], -largest, largest)));
                    if (lane == d % 8)
                        atomic_add(slabs + corner + plane, weight);
                }
#else
                const size_t corner = (size_t)(y + dy[d]) * pitch + x + dx[d];
#if FLOAT_SUMS
                __global float *sums = slabs + frame * plane + corner + lane;
                #pragma unroll
                for (int i = 0; i < 8; ++i)
                    atomic_add_float(sums + i * pitch, column[i] * factor * kaiser[i]);
#else
                __local int *sums = tile + (y - top + dy[d]) * TILE_X + x - left + dx[d] + lane;
                #pragma unroll
                for (int i = 0; i < 8; ++i)
                    atomic_add(sums + i * TILE_X,
                               convert_int_rte(clamp(column[i] * factor * kaiser[i], -largest, largest)));
#endif
                if (lane == d % 8)
                    atomic_add(weights + frame * plane + corner, weight);
#endif
            }
        }
    }
#if !GLOBAL_SUMS
    barrier(CLK_LOCAL_MEM_FENCE);
    __global int *slab = slabs + ((size_t)frame * get_num_groups(1) + group) * (TILE_Y * TILE_X);
    for (int k = item; k < TILE_Y * TILE_X; k += ITEMS)
        slab[k] = tile[k];
#endif
}
