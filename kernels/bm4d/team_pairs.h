// Variances of the noise in the coefficients that an item of a team holds, where cubes share voxels.
//
// Needs: cube_groups.h, bm3d/stack_variances.h.

// Three steps with a barrier after each: codes and counters are cleared; codes are stored of pairs in small blocks, and counted in large ones;
// counters become floats, as converting them at each use would take longer.
static inline void clear_pairs(__local uchar *codes, __local int *counts, int item)
{
    // Codes are read four at a time, those beyond the last pair with it.
    for (int k = item; k < CODES / 4; k += TEAM)
        ((__local uint *)codes)[k] = 0x01010101u * APART;
    for (int k = item; k < COUNTED_BLOCKS * CUBE; k += TEAM)
        counts[k] = 0;
}

static inline void count_pairs(__local uchar *codes, __local int *counts, __local const int4 *place, int item, int size)
{
    for (int pair = item; pair < NEIGHBOURS * (NEIGHBOURS - 1) / 2; pair += TEAM) {
        // Pairs that are 1, 2, ... apart, from the end on to the beginning.
        const int one = pair % NEIGHBOURS, other = (one + 1 + pair / NEIGHBOURS) % NEIGHBOURS;
        const int p = min(one, other), q = max(one, other);
        const int code = q < size ? shared_voxels(place[p], place[q]) : APART;
        const int stride = 1 << (31 - clz(p ^ q));
        if (stride < COUNTED_STRIDE)
            codes[pair_place(p, q)] = code;
        else if (code != APART)
            atomic_inc(counts + code * COUNTED_BLOCKS + counted_block(stride, p & ~(2 * stride - 1)));
    }
}

static inline void counts_as_floats(__local int *counts, int item)
{
    for (int k = item; k < COUNTED_BLOCKS * CUBE; k += TEAM)
        ((__local float *)counts)[k] = (float)counts[k];
}

// Sums the covariances across the halves of each block of the stack, see variances_of_sums, for the coefficient that `correlation`
// points to.
static inline void across_pairs(float *sums, __local const uchar *codes, __local const float *often,
                                __global const float *correlation)
{
    #pragma unroll
    for (int stride = 1; stride < min(NEIGHBOURS, COUNTED_STRIDE); stride *= 2) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
            float across = 0.0f;
            #pragma unroll
            for (int pair = 0; pair < stride * stride; ++pair) {
                // Four codes are read at a time.
                const int at = stride_place(stride) + k / 2 * stride + pair;
                const uint code = ((__local const uint *)codes)[at / 4] >> (8 * (at % 4)) & 255;
                across += correlation[code * CUBE];
            }
            sums[k + stride] = across;
        }
    }
    if (NEIGHBOURS >= 2 * COUNTED_STRIDE) {
        float across[COUNTED_BLOCKS];
        #pragma unroll
        for (int block = 0; block < COUNTED_BLOCKS; ++block)
            across[block] = 0.0f;
        #pragma unroll 8
        for (int code = 0; code < CUBE; ++code) {
            const float covariance = correlation[code * CUBE];
            #pragma unroll
            for (int block = 0; block < COUNTED_BLOCKS; ++block)
                across[block] = fma(often[code * COUNTED_BLOCKS + block], covariance, across[block]);
        }
        #pragma unroll
        for (int stride = COUNTED_STRIDE; stride < NEIGHBOURS; stride *= 2)
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; k += 2 * stride)
                sums[k + stride] = across[counted_block(stride, k)];
    }
}
