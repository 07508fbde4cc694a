// Filters groups of similar patches, as shrink_shared does, in the form a CPU wants: one work-item takes a whole group, row by
// row of eight pixels as vectors, and adds straight to its slab.
//
// Reference: Davy and Ehret 2020, section 4.4. The transform along y works on vectors as they are; a transposition in
//   registers brings x there.
// Grid: (groups of GROUP_X references in x, of GROUP_Y in y, frames).
// Constants: PATCH = 8, STEP, WINDOW, NEIGHBOURS, INDEX_BITS, TRANSFORM, STACK, WIENER, GROUP_X, GROUP_Y, SIGMA_MAP, SHARED_NOISE, SPECTRUM,
//   VIDEO: one reference frame a launch, `only`, and of its groups every second one along each axis: groups so far apart, GROUP_X
//   and GROUP_Y large enough, share no pixel, and add to the sums as they are.
// Shapes: as in shrink_shared.
// Cost a group of n: (3 with WIENER, else 2) * 16 n transforms of eight values, as many of n; 64 n additions.

#include "common/patch_grid.h"
#include "common/match_key.h"
#if VIDEO
#include "common/frame_ring.h"
#include "common/place_code.h"
#endif
typedef float8 REAL;
#include "bm3d/patch_transform.h"
#include "bm3d/stack_transform.h"
#include "bm3d/shrinkage.h"
#if SHARED_NOISE || SPECTRUM
#include "bm3d/shared_noise.h"
#endif

#define TILE_X REACHED(GROUP_X)
#define TILE_Y REACHED(GROUP_Y)

// One unaligned access: PoCL takes vload apart into pairs.
typedef float8 UNALIGNED __attribute__((aligned(4)));
typedef int8 UNALIGNED_INT __attribute__((aligned(4)));
#define ROW(pointer) (*(__global const UNALIGNED *)(pointer))

// Three perfect shuffles of the rows' values transpose eight rows.
static inline void transpose(float8 *v)
{
    #pragma unroll
    for (int stage = 0; stage < 3; ++stage) {
        float8 w[8];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float8 a = v[i], b = v[i + 4];
            w[2 * i] = (float8)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3);
            w[2 * i + 1] = (float8)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7);
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i] = w[i];
    }
}

static inline float lanes_sum(float8 v)
{
    const float4 four = v.lo + v.hi;
    const float2 two = four.lo + four.hi;
    return two.x + two.y;
}

// Pixels of a patch in the grey levels of the reference's frame.
#if VIDEO
typedef Link Alike;
#define ALIKE(link, pixels) ((pixels) * (link).scale + (link).shift)
#else
typedef int Alike;
#define ALIKE(link, pixels) (pixels)
#endif

// v holds [row of the spectrum][patch].
static inline void load_spectra(float8 *v, __global const float *pixels, const int *there, const Alike *alike, int pitch,
                                float level, float inverse, int size)
{
    for (int k = 0; k < size; ++k) {
        float8 patch[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            patch[i] = (ALIKE(alike[k], ROW(pixels + there[k] + i * pitch)) - level) * inverse;
        transform_forward(patch);
        transpose(patch);
        transform_forward(patch);
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i * NEIGHBOURS + k] = patch[i];
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        for (int k = size; k < NEIGHBOURS; ++k)
            v[i * NEIGHBOURS + k] = (float8)0.0f;
}

#if SHARED_NOISE
// Adds to `sum`, for all eight rows of spectra, the covariance of the noise of two patches.
static inline void add_pair(float8 *sum, uchar code, __global const float *correlation)
{
#if SPECTRUM
    __global const float *covariance = correlation + code * (PATCH * PATCH);
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        sum[i] += ROW(covariance + i * PATCH);
#else
    const float8 along_y = ROW(correlation + (code & ~(PATCH - 1)));
    __global const float *along_x = correlation + code % PATCH * PATCH;
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        sum[i] += along_y * along_x[i];
#endif
}

// Sums of covariances across the halves of each block of the stack, see variances_of_sums, for all eight rows of spectra.
static inline void across_pairs(float8 *sums, const uchar *codes, __global const float *correlation, int size)
{
    for (int stride = 1; stride < size; stride *= 2) {
        for (int k = 0; k < size; k += 2 * stride) {
            __private const uchar *block = codes + pair_place(k, k + stride);
            float8 sum[8];
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                sum[i] = (float8)0.0f;
            for (int pair = 0; pair < stride * stride; ++pair)
                if (block[pair] != APART)
                    add_pair(sum, block[pair], correlation);
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                sums[i * NEIGHBOURS + k + stride] = sum[i];
        }
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        for (int k = size; k < NEIGHBOURS; ++k)
            sums[i * NEIGHBOURS + k] = (float8)0.0f;
}
#define VARIANCE(k) variance[k]
#else
#define VARIANCE(k) alone
#endif

__kernel void shrink_lanes(__global const float *noisy,
#if WIENER
                           __global const float *basic,
#endif
                           int pny, int pitch, int y0, int x0,
                           int first_y, int last_y, int rows, int first_x, int last_x, int columns, int groups_x,
#if VIDEO
                           int ring, int first_slot, int sum_ring, int first_sum, int frames_before, int frames_after,
                           int earliest, int only, int parity_y, int parity_x, __global const uint *codes_found,
#else
                           __global const int4 *offsets,
#endif
                           __global const uint *keys, int matched,
                           __global const float *levels, __global const float *matched_levels,
#if SIGMA_MAP
                           __global const float *variation, int map_pitch, int map_y, int map_x,
#endif
                           float similar, float threshold, __global const float *kaiser,
                           __global const float *correlation,
#if SPECTRUM
                           int spectrum_frames,
#endif
                           float scale, float largest, float units,
                           __global int *slabs
#if !VIDEO
                           , __global int *weights
#endif
                           )
{
    const size_t plane = (size_t)pny * pitch;
#if VIDEO
    const int frame = get_global_id(2) * matched + only;
    const int row0 = (2 * get_global_id(1) + parity_y) * GROUP_Y;
    const int column0 = (2 * get_global_id(0) + parity_x) * GROUP_X;
    const int slot = ring_slot(first_slot, only, ring);
    const int sum_slot = ring_slot(first_sum, only, sum_ring);
    const size_t first = ((size_t)get_global_id(2) * ring + slot) * plane;
    const int links_a_frame = frames_before + 1 + frames_after;
    const int centre_link = frame * links_a_frame + frames_before;
    const float level_sigma = frame_link(levels, centre_link).noise;
    const float matched_sigma = frame_link(matched_levels, only * links_a_frame + frames_before).noise;
    if (matched_sigma <= 0.0f || level_sigma <= 0.0f)
        return;  // nothing to filter in this frame, or in this channel
#else
    const int frame = get_global_id(2);
    const int row0 = get_global_id(1) * GROUP_Y;
    const int column0 = get_global_id(0) * GROUP_X;
    const int group = get_global_id(1) * groups_x + get_global_id(0);
    const size_t first = frame * plane;
    const float level_sigma = levels[frame];
    const float matched_sigma = matched_levels[frame % matched];
    const int top = y0 + grid_position(row0, first_y, last_y) - WINDOW / 2;
    const int left = x0 + grid_position(column0, first_x, last_x) - WINDOW / 2;
    const int groups = get_global_size(1) * groups_x;
    __global int *slab = slabs + ((size_t)frame * groups + group) * (TILE_Y * TILE_X);
    for (int k = 0; k < TILE_Y * TILE_X; ++k)
        slab[k] = 0;
#endif
    const float8 window = ROW(kaiser);
#if SPECTRUM
    correlation += frame / spectrum_frames * ((APART + 1) * PATCH * PATCH);
#endif

    for (int reference = 0; reference < GROUP_X * GROUP_Y; ++reference) {
        const int row = row0 + reference / GROUP_X;
        const int column = column0 + reference % GROUP_X;
        if (row >= rows || column >= columns)
            continue;
        const int y = y0 + grid_position(row, first_y, last_y);
        const int x = x0 + grid_position(column, first_x, last_x);
        __global const float *here = noisy + first + (size_t)y * pitch + x;
        __global const uint *matches = keys + ((size_t)(frame % matched) * rows + row) * NEIGHBOURS * columns + column;
        float limit = similar * matched_sigma * matched_sigma;
#if SIGMA_MAP
        __global const float *centre = variation + (y + map_y + PATCH / 2) * map_pitch + x + map_x + PATCH / 2;
        limit *= *centre * *centre;
#endif
        int4 place[NEIGHBOURS];
        int there[NEIGHBOURS];
        Alike alike[NEIGHBOURS];
        int found = 0;
        for (; found < NEIGHBOURS; ++found) {
            const uint key = matches[(size_t)found * columns];
            if (key >= FAR_KEY || (found > 0 && key_distance(key) > limit))
                break;
#if VIDEO
            const uint code = codes_found[matches - keys + (size_t)found * columns];
            place[found] = (int4)(place_t(code), 0, place_y(code), place_x(code));
            alike[found] = frame_link(levels, centre_link + place[found].x);
            there[found] = (ring_slot(slot, place[found].x, ring) - slot) * (int)plane + place[found].z * pitch + place[found].w;
#else
            place[found] = offsets[key & INDEX_MASK];
            there[found] = place[found].z * pitch + place[found].w;
#endif
        }
        const int size = 1 << (31 - clz(found));
        float sigma = level_sigma;
#if SIGMA_MAP || VIDEO
        float variance = 0.0f;
        for (int k = 0; k < size; ++k) {
#if SIGMA_MAP
            const float s = centre[place[k].z * map_pitch + place[k].w];
#else
            const float s = 1.0f;
#endif
#if VIDEO
            variance += s * s * alike[k].noise * alike[k].noise;
#else
            variance += s * s;
#endif
        }
        sigma = (VIDEO ? 1.0f : level_sigma) * sqrt(variance / size);
#endif
        const float level = *here;
        const float inverse = 1.0f / max(sigma, SMALLEST_SIGMA);
        const float gain = stack_gain(size);
        float8 v[8 * NEIGHBOURS];
        load_spectra(v, here, there, alike, pitch, level, inverse, size);
#if WIENER
        float8 b[8 * NEIGHBOURS];
        load_spectra(b, basic + first + (size_t)y * pitch + x, there, alike, pitch, level, inverse, size);
#endif
#if SHARED_NOISE
        uchar codes[CODES];
        for (int p = 0; p < size - 1; ++p)
            for (int q = p + 1; q < size; ++q)
                codes[pair_place(p, q)] = place[p].x == place[q].x
                    ? pair_code(place[p].z - place[q].z, place[p].w - place[q].w) : APART;
        float8 variances[8 * NEIGHBOURS];
        across_pairs(variances, codes, correlation, size);
#endif
        float8 sum = (float8)0.0f;
        for (int i = 0; i < 8; ++i) {
            float8 *stack = v + i * NEIGHBOURS;
            stack_forward(stack, size);
#if SPECTRUM
            const float8 alone = ROW(correlation + i * PATCH);
#else
            const float8 alone = (float8)1.0f;
#endif
#if SHARED_NOISE
            float8 *variance = variances + i * NEIGHBOURS;
            variances_of_sums(variance, size, alone);
#endif
#if WIENER
            float8 *told = b + i * NEIGHBOURS;
            stack_forward(told, size);
            // The mean of the group is kept whatever it is: a grey level is no signal to be shrunk.
            if (i == 0)
                told[0].s0 = INFINITY;
            for (int k = 0; k < size; ++k)
                stack[k] = removed_wiener(stack[k], told[k], threshold, gain * VARIANCE(k), &sum);
#else
            if (i == 0) {
                stack[0].s0 = 0.0f;
                sum.s0 += threshold > 0.0f ? gain * VARIANCE(0).s0 : 0.0f;
            }
            for (int k = 0; k < size; ++k)
                stack[k] = removed_hard(stack[k], threshold, gain * VARIANCE(k), &sum);
#endif
            stack_inverse(stack, size);
        }
#if SPECTRUM
        const float weight_gain = gain * fmax(*correlation, LEAST_MEAN_VARIANCE);
#else
        const float weight_gain = gain;
#endif
        const int weight = group_units(lanes_sum(sum) / weight_gain, units);
#if SIGMA_MAP && !VIDEO
        const float in_levels = sigma / level_sigma;
#else
        const float in_levels = 1.0f;
#endif
        const float8 factor = weight / units * in_levels * scale / gain * window;
        for (int k = 0; k < size; ++k) {
#if VIDEO
            if (place[k].x < earliest)
                continue;
            const float8 here_factor = factor * sigma / alike[k].noise;
            const long corner = (((long)get_global_id(2) * sum_ring + ring_slot(sum_slot, place[k].x, sum_ring)) * 2 * pny
                                 + y + place[k].z) * pitch + x + place[k].w;
            __global int *sums = slabs + corner;
            const int line = pitch;
            slabs[corner + plane] += weight;
#else
            const float8 here_factor = factor;
            __global int *sums = slab + (y - top + place[k].z) * TILE_X + x - left + place[k].w;
            const int line = TILE_X;
            atomic_add(weights + frame * plane + (size_t)(y + place[k].z) * pitch + x + place[k].w, weight);
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
