// Replaces each patch of a group of similar ones by the combination of them all that is closest to what is known of the patches, on
// a GPU: work-item j holds row j of a matrix.
//
// Reference: methods page, "ridge combinations". Q = X X^T + D, with the patches of an estimate as rows of X, less those of the
//   reference, and D the noise in each; P = Q^-1 - u u^T / (1^T u) with u = Q^-1 1; the combinations are I - D P. Q is inverted by
//   sweeps, in place; registers turn with the pivot, so that it is always in the first one.
// Grid: (NEIGHBOURS, rows * columns, volumes * layers) in groups of NEIGHBOURS; with VIDEO, (…, channels * frames).
// Constants: those of groups.h; LINE: length of a row in local memory, a multiple of 4, at least PIXELS.
// Shapes: noisy, estimate, begun (what is combined) as images of groups.h, and the others.
// Cost of a group: 2 NEIGHBOURS^2 PIXELS + NEIGHBOURS^3 multiplications and additions; KINDS NEIGHBOURS PIXELS atomic ones.

#include "ridge/groups.h"

// Sum over all work-items, the same for all; `shared` holds one number for each.
__attribute__((always_inline))
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
void combine_groups(COMBINED_ARGUMENTS)
{
    __local float area[NEIGHBOURS * LINE] __attribute__((aligned(16)));
    __local float pivots[2][NEIGHBOURS] __attribute__((aligned(16)));
    __local Match matches[NEIGHBOURS];
    __local int2 taken[NEIGHBOURS];  // the two weights

    const int lane = get_local_id(0);
    const Group group = group_at(PLACE_NAMES, MAP_NAMES get_global_id(2) / LAYERS, get_global_id(2) % LAYERS,
                                 get_global_id(1) / columns, get_global_id(1) % columns);
    const bool filtered = group.sigma > 0.0f;
    const float inverse = filtered ? 1.0f / group.sigma : 0.0f;
    Match match = match_of(group, PLACE_NAMES, MAP_NAMES lane);
    match.added = filtered ? match.added : -1;
    match.factor = filtered ? match.factor : 1.0f;
    const bool found = match.place >= 0;
    matches[lane] = match;
    noisy += group.origin;
    estimate += group.origin;
    begun += group.origin;
    sums += group.sums;
#if !VIDEO
    weights += group.sums;
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    __global const float *reference = estimate + matches[0].place;

    // The estimate of the group, and how much noise remains in it.
    float first = 0.0f, second = 0.0f, count = 0.0f;
    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        __local const Match *one = matches + k / PIXELS;
        float value = 0.0f;
        if (one->place >= 0) {
            const int at = one->place + ahead;
            value = (fma(estimate[at], one->scale, one->shift) - reference[ahead]) * inverse;
#if CHAIN
            const float removed = (noisy[at] - begun[at]) * one->scale * inverse * rsqrt(one->factor);
            first += removed;
            second = fma(removed, removed, second);
            count += 1.0f;
#endif
        }
        area[k / PIXELS * LINE + p] = value;
    }
    float remaining = 1.0f;
#if CHAIN
    first = group_sum(pivots[0], lane, first);
    second = group_sum(pivots[0], lane, second);
    count = group_sum(pivots[0], lane, count);
    remaining = remaining_noise(first, second, count, least);
#endif
    const float energy = PIXELS * remaining * remaining;
    const float noise = energy * match.factor;
    barrier(CLK_LOCAL_MEM_FENCE);

    // Row `lane` of Q.
    float q[NEIGHBOURS];
    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i)
        q[i] = 0.0f;
    for (int p = 0; p < PIXELS; p += 4) {
        const float4 own = *(__local const float4 *)(area + lane * LINE + p);
        #pragma unroll
        for (int i = 0; i < NEIGHBOURS; ++i) {
            const float4 other = *(__local const float4 *)(area + i * LINE + p);
            q[i] = fma(own.x, other.x, fma(own.y, other.y, fma(own.z, other.z, fma(own.w, other.w, q[i]))));
        }
    }

    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i)
        q[i] = i == lane ? fma(q[i], DIAGONAL, noise) : q[i];

    // Sweeps. What is in the registers is row `lane` of the matrix over `times`, which is 1 until its own sweep. Without
    // rounding no pivot is less than the noise.
    float times = 1.0f;
    for (int sweep = 0; sweep < NEIGHBOURS; ++sweep) {
        __local float *pivot = pivots[sweep & 1];
        const bool mine = lane == sweep;
        pivot[(lane - sweep) & (NEIGHBOURS - 1)] = mine ? max(q[0], noise) : times * q[0];
        barrier(CLK_LOCAL_MEM_FENCE);
        const float one_over = 1.0f / pivot[0];
        const float share = mine ? 0.0f : q[0] * one_over;
        #pragma unroll
        for (int r = 0; r < NEIGHBOURS / 4; ++r) {
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
        row_sum -= matches[i].place >= 0 ? q[i] : 0.0f;
    row_sum = found ? times * row_sum : 0.0f;
    const float total = group_sum(pivots[0], lane, row_sum);
    const float shared_part = noise * row_sum / total;
    float variance = 0.0f;
    #pragma unroll
    for (int i = 0; i < NEIGHBOURS; ++i) {
        q[i] = fma(shared_part, pivots[0][i], noise * times * q[i]) + (i == lane ? 1.0f : 0.0f);
        variance = fma(q[i] * q[i], matches[i].place >= 0 ? matches[i].factor : 0.0f, variance);
    }

    // What is combined, less the estimate of the reference.
    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        __local const Match *one = matches + k / PIXELS;
        area[k / PIXELS * LINE + p] = one->place < 0 ? 0.0f
            : (fma(begun[one->place + ahead], one->scale, one->shift) - reference[ahead]) * inverse;
    }
    const int weight = found ? patch_weight(variance, units) : 0;
    const int partly = KEPT ? convert_int_rte(weight * (least / remaining)) : 0;
    taken[lane] = (int2)(weight, partly);
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

    for (int k = lane; k < NEIGHBOURS * PIXELS; k += NEIGHBOURS) {
        const int j = k / PIXELS, p = k % PIXELS, ahead = pixel_ahead(p, ny, nx);
        __local const Match *one = matches + j;
        const float here = one->added < 0 ? 0.0f : NOISE_AT(one->place, one->noise, p);
        if (!(here > 0.0f))
            continue;
        const float old = fma(estimate[one->place + ahead], one->scale, one->shift) - reference[ahead];
        const float change = scale / units * fma(area[j * LINE + p], group.sigma, -old) / here;
        __global int *sum = sums + one->added + ahead;
        atomic_add(sum, convert_int_rte(clamp(taken[j].x * change, -largest, largest)));
        if (KEPT)
            atomic_add(sum + group.stride, convert_int_rte(clamp(taken[j].y * change, -largest, largest)));
    }
    if (match.added >= 0) {
        __global int *sum = WEIGHTS + match.added;
        atomic_add(sum, weight);
        if (KEPT)
            atomic_add(sum + group.stride, partly);
    }
}
