// The variance of the noise in each coefficient of a stack whose patches overlap and so share some of their noise.
//
// Reference: Makinen, Azzari and Foi 2020, section III. The noise of two patches that lie (dy, dx) apart has a known covariance
//   in coefficient (fy, fx) of their 2D spectra, in sigma squared: correlation[dy][fy] * correlation[dx][fx] for white noise,
//   covariance[dy * APARTS + dx][fx][fy] for correlated noise (SPECTRUM). Along a Haar stack a pair counts in the difference
//   that has one of the two on either side, and in all sums above: one addition a pair is enough.
// Constants: NEIGHBOURS, PATCH, SPECTRUM.
// Needs: REAL.
// Shapes: correlation (PATCH + 1, PATCH), by displacement and frequency, the last row 0; covariance (APARTS * APARTS + 1, PATCH,
//   PATCH), the last one 0, the first one the variances of a single patch; codes (CODES): dy * APARTS + dx of each pair, or
//   APART, sorted by the difference in which the pair counts; blocks of 16 and more begin at multiples of 16.

#define CODES ((NEIGHBOURS * (NEIGHBOURS - 1) / 2 + 15) / 16 * 16)
// Displacements along an axis at which patches share noise, 0 included. Correlated noise reaches LAGS = 4 pixels further.
#if SPECTRUM
#define APARTS (PATCH + 4)
#else
#define APARTS PATCH
#endif
// Code of a pair that shares no noise. It points to the row of zeros, so that pairs need no test.
#define APART (APARTS * APARTS)
#define FOUR_APART (0x01010101u * APART)
// Smallest variance of a coefficient, relative to that of a single patch: rounding must not make it 0.
#define LEAST_VARIANCE 1.0e-3f

// First code of the blocks of a stride.
static inline int stride_place(int stride)
{
    const int before = NEIGHBOURS / 2 * (stride - 1);
    return stride < 4 ? before : (before + 15) / 16 * 16;
}

// Index of the pair p < q among the codes.
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

// The same for two patches at (dt, dz, dy, dx). The noise of different frames is independent.
static inline uchar overlap_code(int4 one, int4 other)
{
    return one.x == other.x ? pair_code(one.z - other.z, one.w - other.w) : APART;
}

// Turns sums of covariances into variances, in place, for a stack of `size`. On entry, variance[k + stride] holds the sum over
// the pairs with one patch in either half of the block that begins at k; variance[0] is not read. `alone` is the variance in a
// single patch.
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
            // Beyond the stack there are no values, but a variance of 0 would be a divisor.
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; k += 2 * stride)
                variance[k + stride] = (REAL)1.0f;
        }
    }
    variance[0] = fmax(total[0] / max(size, 1), least);
}
