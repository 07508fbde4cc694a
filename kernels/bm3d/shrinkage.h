// What is taken away from the spectrum of a group, and what the group weighs. Values are in units of sigma; `gain` is
// what the stack transform made of the variance of the noise.
//
// The inverse transform is applied to what is taken away, not to what is left: its precision does not depend on the
// grey level, and a group that loses nothing adds exactly nothing.

// A sigma below is taken as this: its inverse times any pixel is still a number.
#define SMALLEST_SIGMA 1.0e-18f

// Hard threshold: removes coefficients whose square is below limit * variance; adds up the variances of the others.
static inline REAL removed_hard(REAL c, float limit, REAL variance, REAL *sum)
{
    const REAL large = select((REAL)0.0f, (REAL)1.0f, c * c >= limit * variance);
    *sum += large * variance;
    return c - large * c;
}

// Wiener filter told by the coefficient b of the basic estimate and of noise of strength * variance; adds up the
// variances of what is left.
static inline REAL removed_wiener(REAL c, REAL b, float strength, REAL variance, REAL *sum)
{
    const REAL noise = strength * variance / (b * b + strength * variance);
    const REAL factor = 1.0f - noise;
    *sum += factor * factor * variance;
    return c * noise;
}

// Noise with a spectrum has this much variance in the mean of a patch, in sigma squared, or more. Weights are told relative
// to that of the mean, which is kept, so that they fit the units that white noise wants.
#define LEAST_MEAN_VARIANCE 0.0625f

// Weight of a group as a whole number of `units`, so that numerator and denominator are made from the same one.
static inline int group_units(float sum, float units)
{
    return max(convert_int_rte(units / max(sum, 1.0f)), 1);
}
