// Variances of the noise in the coefficients of a Haar stack, from sums of the covariances of pairs of its members.
//
// A pair counts in the difference that has one of the two on either side, and in all sums above: one addition a pair is enough.
// Constants: NEIGHBOURS.
// Needs: REAL.
// Shapes: codes (CODES): one for each pair, sorted by the difference in which the pair counts; blocks of 16 and more begin at
//   multiples of 16.

// A group of one has no pairs, but OpenCL C has no arrays of length 0.
#define CODES (NEIGHBOURS > 1 ? (NEIGHBOURS * (NEIGHBOURS - 1) / 2 + 15) / 16 * 16 : 16)
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

// The same the other way round: the pair p, q whose code is that far behind the first one of the blocks of a stride.
static inline int2 pair_at(uint number, int stride)
{
    const int row = number % (stride * stride) / stride, column = number % stride;
    const int block = number / (stride * stride) * (2 * stride);
    return (int2)(block + row, block + stride + column);
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
