// The tests that the differences F of two patches must pass: those of the mean and of the deviation, from two sums, and the
// Shapiro-Wilk W of the sorted differences.
//
// Constants: PATCH (3, 5 or 7). Needs real (common/lanes.h).
// Cost of W: 26, 138 or 383 exchanges of two values.

#include "swnlm/sorting_networks.h"

#define VALUES (PATCH * PATCH)

#if LANES == 1
// Drivers know these two as instructions.
#define SMALLER(a, b) fmin(a, b)
#define LARGER(a, b) fmax(a, b)
#else
// fmin and fmax of vectors look for values that are no numbers.
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) < (b) ? (b) : (a))
#endif

// The square of VALUES times the variance of differences with these sums, of themselves and of their squares. Of whole numbers it is
// exact, as long as they are small: a difference on the limit of a test falls on the same side everywhere.
static inline real spread_of(real sum, real squares)
{
    return fma(sum, -sum, squares * VALUES);
}

// Whether mean and deviation are those of noise: `variance` is that of a difference, `spread` from spread_of; `limits` are the square
// of the factor of the standard error, and the smallest and the largest spread for a variance of 1.
#define LIKE_NOISE(sum, spread, variance, limits) \
    ((sum) * VALUES * (sum) < (limits).x * (spread) && (spread) > (limits).y * (variance) && (spread) < (limits).z * (variance))

// W of differences with this spread, which are sorted; `weights` are those of the largest, the second largest, and so on.
// Differences of pairs of sorted values: the mean falls out, and W of F and of -F is the same to the last bit.
static inline real shapiro_wilk(real *f, real spread, __constant float *weights)
{
#define C(i, j) { \
    const real smaller = SMALLER(f[i], f[j]); \
    f[j] = LARGER(f[i], f[j]); \
    f[i] = smaller; \
}
    SORTING_NETWORK
#undef C
    // Sums of sums, as long as the width of a patch and one, are rounded less.
    real sum = 0.0f;
    #pragma unroll
    for (int j = 0; j < VALUES / 2; j += PATCH + 1) {
        real part = 0.0f;
        #pragma unroll
        for (int i = 0; i < PATCH + 1; ++i)
            part = fma((real)weights[j + i], f[VALUES - 1 - j - i] - f[j + i], part);
        sum += part;
    }
    return sum * VALUES * sum / spread;
}
