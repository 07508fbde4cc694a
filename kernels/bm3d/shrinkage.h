// Shrinkage of one coefficient, and the weight of a group. Values are in units of sigma; `variance` is that of the noise in the
// coefficient, gain of the stack transform included.
//
// The functions return the part of the coefficient that is removed, not what remains. The inverse transform of that part
// is as precise at any grey level, and a group that loses nothing adds exactly nothing.
// Constants: SPECTRUM.
// Needs: REAL.

#include "common/quotient.h"

// Smallest sigma that is used: its inverse times any pixel is still finite.
#define SMALLEST_SIGMA 1.0e-18f

// Hard threshold: removes coefficients whose square is below limit * variance. `sum` adds up the variances of the others.
static inline REAL removed_hard(REAL c, float limit, REAL variance, REAL *sum)
{
    const REAL large = select((REAL)0.0f, (REAL)1.0f, c * c >= limit * variance);
    *sum += large * variance;
    return c - large * c;
}

// Share of a coefficient that a Wiener filter removes, guided by the coefficient b of the basic estimate, for noise of variance
// strength * variance. `sum` adds up the variances of what remains.
static inline REAL removed_share(REAL b, float strength, REAL variance, REAL *sum)
{
    const REAL noise = QUOTIENT(strength * variance, b * b + strength * variance);
    const REAL factor = 1.0f - noise;
    *sum += factor * factor * variance;
    return noise;
}

// The same for a coefficient c.
static inline REAL removed_wiener(REAL c, REAL b, float strength, REAL variance, REAL *sum)
{
    return c * removed_share(b, strength, variance, sum);
}

// One step of a Kalman filter: `state` estimates a coefficient c of a patch from patches like it, and c has noise of this variance.
// How far the guide of the patch is from the state tells how much the state may be wrong.
static inline REAL kalman_step(REAL state, REAL c, REAL guide, REAL noise)
{
    const REAL apart = guide - state;
    const REAL error = apart * apart;
    return state + QUOTIENT(error, error + noise) * (c - state);
}

// Smallest variance of correlated noise in the mean of a patch, in sigma squared. Weights are relative to that variance, so that
// they have the same range as for white noise.
#define LEAST_MEAN_VARIANCE 0.0625f

// Variance of the noise in the mean of a patch, in sigma squared.
static inline float mean_variance(__global const float *correlation)
{
    return SPECTRUM ? fmax(*correlation, LEAST_MEAN_VARIANCE) : 1.0f;
}

// The variances of the noise in a row of coefficients of one patch or cube, on a CPU.
#define VARIANCES_ALONE(correlation) (SPECTRUM ? ROW(correlation) : (float8)1.0f)

// The basic estimate that guides a Wiener filter, as an argument.
#if WIENER
#define BASIC_ARGUMENT __global const float *basic,
#else
#define BASIC_ARGUMENT
#endif

// Weight of a group as a whole number of `units`, so that numerator and denominator use the same rounded weight.
static inline int group_units(float sum, float units)
{
    return max(convert_int_rte(units / max(sum, 1.0f)), 1);
}
