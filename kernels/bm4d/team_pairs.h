// Variances of the noise in the coefficients that an item of a team holds, where cubes share voxels.
//
// Needs: cube_groups.h, bm3d/stack_variances.h.

// The counts of a code in all blocks, in rows of whole vectors; a row of zeros for APART is the last one. Codes that occur are
// listed in order, four at a time: those beyond the last one are APART.
#define COUNTED_ROW (NEIGHBOURS >= 16 ? NEIGHBOURS / 4 : 4)
#define COUNTS (SPECTRUM ? 1 : (CUBE + 1) * COUNTED_ROW)
#define LISTED (CUBE + 4)

// Three steps with a barrier after each: counters are cleared; codes are stored of pairs in small blocks, and counted in
// large ones; those that occur are listed, and counters become floats, as converting them at each use would take longer.
static inline void clear_counts(__local int *counts, __local uint *occurs, int item)
{
    for (int k = item; k < COUNTS; k += TEAM)
        counts[k] = 0;
    if (item < 2)
        occurs[item] = 0;
}

static inline void count_pairs(__local CODE *codes, __local int *counts, __local uint *occurs, __local const int4 *place, int item,
                               int size)
{
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
        #pragma unroll 1
        for (int turn = 0; turn < NEIGHBOURS / 2 * stride; turn += TEAM) {
            const int number = turn + item;
            if (number < NEIGHBOURS / 2 * stride) {
                const int2 pair = pair_at(number, stride);
                const int code = pair.y < size ? shared_noise(place[pair.x], place[pair.y]) : APART;
                if (stride < COUNTED_STRIDE)
                    codes[stride_place(stride) + number] = code;
                else if (code != APART) {
                    atomic_inc(counts + code * COUNTED_ROW + counted_block(stride, pair.x & ~(2 * stride - 1)));
                    atomic_or(occurs + code / 32, 1u << code % 32);
                }
            }
        }
    }
}

static inline void list_codes(__local uchar *list, __local int *counts, __local const uint *occurs, int item)
{
    const uint low = occurs[0], high = occurs[1];
    for (int code = item; code < CUBE; code += TEAM) {
        const uint word = code < 32 ? low : high, bit = 1u << code % 32;
        if (word & bit)
            list[popcount(word & (bit - 1)) + (code < 32 ? 0 : popcount(low))] = code;
    }
    if (item < 4)
        list[popcount(low) + popcount(high) + item] = CUBE;
    for (int k = item; k < COUNTS; k += TEAM)
        ((__local float *)counts)[k] = (float)counts[k];
}

// Sums the covariances across the halves of each block of the stack, see variances_of_sums, for the coefficient that `correlation`
// points to.
static inline void across_pairs(float *sums, __local const CODE *codes, __local const float *often, __local const uchar *list,
                                __local const uint *occurs, __global const float *correlation)
{
    #pragma unroll
    for (int stride = 1; stride < min(NEIGHBOURS, COUNTED_STRIDE); stride *= 2) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
            float across = 0.0f;
            #pragma unroll 16
            for (int pair = 0; pair < stride * stride; ++pair) {
                const int at = stride_place(stride) + k / 2 * stride + pair;
#if SPECTRUM || NEIGHBOURS < 8
                const uint code = codes[at];
#else
                // Four codes are read at a time, where whole words of them are in use.
                const uint code = ((__local const uint *)codes)[at / 4] >> (8 * (at % 4)) & 255;
#endif
                across += correlation[code * CUBE];
            }
            sums[k + stride] = across;
        }
    }
    if (NEIGHBOURS >= 2 * COUNTED_STRIDE) {
        float across[COUNTED_ROW];
        #pragma unroll
        for (int block = 0; block < COUNTED_ROW; ++block)
            across[block] = 0.0f;
        const int count = popcount(occurs[0]) + popcount(occurs[1]);
        #pragma unroll 1
        for (int first = 0; first < count; first += 4) {
            const uint four = *(__local const uint *)(list + first);
            #pragma unroll
            for (int n = 0; n < 4; ++n) {
                const uint code = four >> (8 * n) & 255;
                const float covariance = correlation[code * CUBE];
                #pragma unroll
                for (int part = 0; part < COUNTED_ROW / 4; ++part) {
                    const float4 times = ((__local const float4 *)often)[code * (COUNTED_ROW / 4) + part];
                    across[4 * part] = fma(times.s0, covariance, across[4 * part]);
                    across[4 * part + 1] = fma(times.s1, covariance, across[4 * part + 1]);
                    across[4 * part + 2] = fma(times.s2, covariance, across[4 * part + 2]);
                    across[4 * part + 3] = fma(times.s3, covariance, across[4 * part + 3]);
                }
            }
        }
        #pragma unroll
        for (int stride = COUNTED_STRIDE; stride < NEIGHBOURS; stride *= 2)
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; k += 2 * stride)
                sums[k + stride] = across[counted_block(stride, k)];
    }
}

// The variances of the noise in the stack of one coefficient.
static inline void variances_of_stack(float *variances, __local const CODE *codes, __local const float *often,
                                      __local const uchar *list, __local const uint *occurs, __global const float *correlation,
                                      int size)
{
    const float alone = SPECTRUM ? *correlation : 1.0f;
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        variances[k] = alone;
    if (SHARED_NOISE) {
        across_pairs(variances, codes, often, list, occurs, correlation);
        variances_of_sums(variances, size, alone);
    }
}
