// The variance of the noise in each coefficient of a stack, where patches overlap and so share some of their noise.
//
// Reference: Makinen, Azzari and Foi 2020, section III. Two patches apart by (dy, dx) have noise of a known covariance in
//   coefficient (fy, fx) of their 2D spectra, in sigma squared: white noise of correlation[dy][fy] * correlation[dx][fx],
//   noise with a spectrum (SPECTRUM) of covariance[dy * APARTS + dx][fx][fy].
//   Along a Haar stack a pair counts in the difference that has one of the two on either side, and in all sums above:
//   one addition a pair does.
// Needs: REAL, NEIGHBOURS, PATCH, SPECTRUM.
// Shapes: correlation (PATCH + 1, PATCH), of each displacement and frequency, the last row 0; covariance (APARTS * APARTS + 1,
//   PATCH, PATCH), the last one 0, the first one the variances of a single patch; codes (CODES): (dy * APARTS + dx)
//   of each pair, or APART, ordered by the difference they count in; blocks of 16 and more begin at multiples of 16.

#define CODES ((NEIGHBOURS * (NEIGHBOURS - 1) / 2 + 15) / 16 * 16)
// Displacements along an axis from 0 to where patches share no noise: correlated noise reaches LAGS = 4 pixels further.
#if SPECTRUM
#define APARTS (PATCH + 4)
#else
#define APARTS PATCH
#endif
// Points to the row of 0: pairs need no test.
#define APART (APARTS * APARTS)
#define FOUR_APART (0x01010101u * APART)
// A coefficient of less noise than this share of a single patch's is taken to have so much: rounding must not make it none.
#define LEAST_VARIANCE 1.0e-3f

// Where the codes of the blocks of a stride begin.
static inline int stride_place(int stride)
{
    const int before = NEIGHBOURS / 2 * (stride - 1);
    return stride < 4 ? before : (before + 15) / 16 * 16;
}

// Place of the pair p < q among the codes.
static inline int pair_place(int p, int q)
{
    const int stride = 1 << (31 - clz(p ^ q));
    const int block = p & ~(2 * stride - 1);
    return stride_place(stride) + block / 2 * stride + (p - block) * stride + q - block - stride;
}

static inline uchar pair_code(int dy, int dx)
{
    return abs(dy) < APARTS && abs(dx) < APARTS ? abs(dy) * APARTS + abs(dx) : APART;
}

// Turns sums of covariances across the halves of each block, at the places of the differences in a stack of `size`,
// into variances. On entry variance[k + stride] holds the sum across block k; variance[0] is not read. `alone` is the
// variance in a single patch.
static inline void variances_of_sums(REAL *variance, int size, REAL alone)
{
    const REAL least = LEAST_VARIANCE * alone;
    REAL total[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        total[k] = alone;
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
        if (stride < size) {
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
                const REAL both = total[k] + total[k + stride];
                const REAL across = 2.0f * variance[k + stride];
                variance[k + stride] = fmax((both - across) / (2.0f * stride), least);
                total[k] = both + across;
            }
        } else {
            // Beyond the stack there is nothing; but no noise at all would be divided by.
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; k += 2 * stride)
                variance[k + stride] = (REAL)1.0f;
        }
    }
    variance[0] = fmax(total[0] / max(size, 1), least);
}
