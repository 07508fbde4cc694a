// Variances of the noise in all coefficients of a group whose patches overlap, for CPUs: a vector is a row of a spectrum.
//
// Reference: as in bm3d/shared_noise.h.
// Needs: bm3d/shared_noise.h, common/float8_rows.h.

// Adds the covariance of the noise of two patches to `sum`, for all eight rows of spectra.
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

// Sums the covariances across the halves of each block of the stack, see variances_of_sums, for all eight rows of spectra.
static inline void across_pairs(float8 *sums, const int4 *place, __global const float *correlation, int size)
{
    uchar codes[CODES];
    for (int p = 0; p < size - 1; ++p)
        for (int q = p + 1; q < size; ++q)
            codes[pair_place(p, q)] = overlap_code(place[p], place[q]);
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
