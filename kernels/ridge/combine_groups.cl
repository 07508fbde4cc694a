// Replaces each patch of a group of similar ones by the combination of them all that is closest to what is known of the patches, on
// a GPU: work-item j holds row j of a matrix.
//
// Reference: methods page, "ridge combinations". Q = X X^T + D, with the patches of an estimate as rows of X, less those of the
//   reference, and D the noise in each; P = Q^-1 - u u^T / (1^T u) with u = Q^-1 1; the combinations are I - D P. Q is inverted by
//   sweeps, in place; registers turn with the pivot, so that it is always in the first one.
// Grid: (NEIGHBOURS, rows * columns, volumes * layers) in groups of NEIGHBOURS.
// Constants: those of groups.h; LINE: length of a row in local memory, a multiple of 4, at least PIXELS; CHAIN = 1: what is combined is
//   `begun`, partly filtered already, and a part of it remains: see the methods page.
// Shapes: noisy, estimate, begun as images of groups.h; sums (volumes, 1 + CHAIN, nz, ny, nx): what the estimate changes by, in sigma
//   times `scale` and weight, and with CHAIN the same times the part that remains; weights likewise, of the patch that begins there.
// Cost of a group: 2 NEIGHBOURS^2 PIXELS + NEIGHBOURS^3 multiplications and additions; (1 + KEPT) NEIGHBOURS PIXELS atomic ones.

#include "common/match_key.h"
#include "ridge/groups.h"

#define FOURS (NEIGHBOURS / 4)

// Sum over all work-items, the same for all; `shared` holds one number for each.
static inline float group_sum(__local float *shared, int lane, float value)
{
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0.0f;
    for (int k = 0; k < NEIGHBOURS; k += 4) {
        const float4 four = *(__local const float4 *)(shared + k);
        sum += (four.x + four.y) + (four.z + four.w);
    }
    return sum;
}

__kernel __attribute__((reqd_work_group_size(NEIGHBOURS, 1, 1)))
void combine_groups(__global const float *noisy, __global const float *estimate, __global const float *begun,
                    SHAPE_ARGUMENTS, MATCH_ARGUMENTS, MAP_ARGUMENTS
                    float tau, float scale, float largest, float units, __global int *sums, __global int *weights)
{
    __local float area[NEIGHBOURS * LINE] __attribute__((aligned(16)));
    __local float pivots[2][NEIGHBOURS] __attribute__((aligned(16)));
    __local int places[NEIGHBOURS];
    __local float factors[NEIGHBOURS];
    __local int4 taken[NEIGHBOURS];  // z, its two weights

    const int lane = get_local_id(0);
    const int row = get_global_id(1) / columns, column = get_global_id(1) % columns;
    const int volume = get_global_id(2) / layers, layer = get_global_id(2) % layers;
    const int z = reference_at(layer, STEP_Z, first_z, last_z);
    const int y = reference_at(row, STEP_Y, first_y, last_y);
    const int x = reference_at(column, STEP_X, first_x, last_x);
    const size_t origin = (size_t)volume * nz * ny * nx;
    levels += volume * slices + first_slice;
    const float level = levels[z + PZ / 2];
    if (!(level > 0.0f))
        return;
    const float sigma = level * max(VARIED(y, x), 1e-2f), inverse = 1.0f / sigma;

    const size_t first_key = (((size_t)(volume % matched) * layers + layer) * rows + row) * NEIGHBOURS * columns + column;
    const uint key = keys[first_key + (size_t)lane * columns];
    // The reference itself always is the first, even where its values are no numbers.
    const bool found = lane == 0 || key < FAR_KEY;
    const int4 offset = offsets[found && key < FAR_KEY ? key & INDEX_MASK : 0u];
    const int my_z = z + offset.y, my_y = y + offset.z, my_x = x + offset.w;
    const float s = levels[my_z + PZ / 2] * VARIED(my_y, my_x) * inverse;
    const float factor = found ? max(s * s, LEAST_FACTOR) : 1.0f;
    places[lane] = found ? (my_z * ny + my_y) * nx + my_x : -1;
    factors[lane] = found ? factor : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    const int reference = places[0];

    // The estimate of the group, and how much noise remains in it.
    float first = 0.0f, second = 0.0f, count = 0.0f;
    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int j = k / PIXELS, p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        const int place = places[j];
        float value = 0.0f;
        if (place >= 0) {
            const size_t at = origin + place + ahead;
            value = (estimate[at] - estimate[origin + reference + ahead]) * inverse;
#if CHAIN
            const float removed = (noisy[at] - begun[at]) * inverse * rsqrt(factors[j]);
            first += removed;
            second = fma(removed, removed, second);
            count += 1.0f;
#endif
        }
        area[j * LINE + p] = value;
    }
    float remaining = 1.0f;
#if CHAIN
    first = group_sum(pivots[0], lane, first);
    second = group_sum(pivots[0], lane, second);
    count = group_sum(pivots[0], lane, count);
    remaining = remaining_noise(first, second, count, tau);
#endif
    const float least = PIXELS * remaining * remaining;
    const float noise = least * factor;
    barrier(CLK_LOCAL_MEM_FENCE);

    // Row `lane` of Q.
    float q[NEIGHBOURS];
    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i)
        q[i] = i == lane ? noise : 0.0f;
    for (int p = 0; p < PIXELS; p += 4) {
        const float4 own = *(__local const float4 *)(area + lane * LINE + p);
        #pragma unroll
        for (int i = 0; i < NEIGHBOURS; ++i) {
            const float4 other = *(__local const float4 *)(area + i * LINE + p);
            q[i] = fma(own.x, other.x, fma(own.y, other.y, fma(own.z, other.z, fma(own.w, other.w, q[i]))));
        }
    }

    // Sweeps. What is in the registers is row `lane` of the matrix over `times`, which is 1 until its own sweep. All pivots are at least as
    // large as the least noise, but for rounding.
    float times = 1.0f;
    const float floor_of_pivots = least * LEAST_FACTOR;
    for (int sweep = 0; sweep < NEIGHBOURS; ++sweep) {
        __local float *pivot = pivots[sweep & 1];
        pivot[(lane - sweep) & (NEIGHBOURS - 1)] = times * q[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        const float one_over = 1.0f / max(pivot[0], floor_of_pivots);
        const bool mine = lane == sweep;
        const float share = mine ? 0.0f : q[0] * one_over;
        #pragma unroll
        for (int r = 0; r < FOURS; ++r) {
            const float4 four = *(__local const float4 *)(pivot + 4 * r);
            if (r > 0)
                q[4 * r - 1] = fma(-share, four.x, q[4 * r]);
            q[4 * r] = fma(-share, four.y, q[4 * r + 1]);
            q[4 * r + 1] = fma(-share, four.z, q[4 * r + 2]);
            q[4 * r + 2] = fma(-share, four.w, q[4 * r + 3]);
        }
        q[NEIGHBOURS - 1] = mine ? -1.0f : share;
        times = mine ? one_over : times;
    }

    // The combinations, and the variance that they leave.
    float row_sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i)
        row_sum -= factors[i] > 0.0f ? q[i] : 0.0f;
    row_sum = found ? times * row_sum : 0.0f;
    const float total = group_sum(pivots[0], lane, row_sum);
    const float shared_part = noise * row_sum / total;
    float variance = 0.0f;
    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i) {
        q[i] = fma(shared_part, pivots[0][i], noise * times * q[i]) + (i == lane ? 1.0f : 0.0f);
        variance = fma(q[i] * q[i], factors[i], variance);
    }

    // What is combined, less the estimate of the reference.
    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int j = k / PIXELS, p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        const int place = places[j];
        area[j * LINE + p] = place < 0 ? 0.0f
            : (begun[origin + place + ahead] - estimate[origin + reference + ahead]) * inverse;
    }
    const int weight = found ? patch_weight(variance, units) : 0;
    const int partly = KEPT ? convert_int_rte(weight * (tau / remaining)) : 0;
    taken[lane] = (int4)(my_z, weight, partly, 0);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p = 0; p < PIXELS; p += 4) {
        float4 sum = (float4)0.0f;
        #pragma unroll
        for (int i = 0; i < NEIGHBOURS; ++i)
            sum = fma((float4)q[i], *(__local const float4 *)(area + i * LINE + p), sum);
        barrier(CLK_LOCAL_MEM_FENCE);
        *(__local float4 *)(area + lane * LINE + p) = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    const size_t volume_pixels = (size_t)nz * ny * nx;
    const size_t sums_at = origin * (1 + KEPT);
    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int j = k / PIXELS, p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        const int place = places[j];
        const int4 patch = taken[j];
        const float here = levels[patch.x + p / (PY * PX)];
        if (place < 0 || !(here > 0.0f))
            continue;
        const float old = estimate[origin + place + ahead] - estimate[origin + reference + ahead];
        const float change = scale / units * (area[j * LINE + p] * sigma - old) / here;
        atomic_add(sums + sums_at + place + ahead, convert_int_rte(clamp(patch.y * change, -largest, largest)));
#if KEPT
        atomic_add(sums + sums_at + volume_pixels + place + ahead,
                   convert_int_rte(clamp(patch.z * change, -largest, largest)));
#endif
    }
    if (found) {
        atomic_add(weights + sums_at + places[lane], weight);
#if KEPT
        atomic_add(weights + sums_at + volume_pixels + places[lane], partly);
#endif
    }
}
