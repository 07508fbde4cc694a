// The variance of the noise in each coefficient of a stack whose patches overlap and so share some of their noise.
//
// Reference: Makinen, Azzari and Foi 2020, section III. The noise of two patches that lie (dy, dx) apart has a known covariance
//   in coefficient (fy, fx) of their 2D spectra, in sigma squared: correlation[dy][fy] * correlation[dx][fx] for white noise,
//   covariance[dy * APARTS + dx][fx][fy] for correlated noise (SPECTRUM).
// Constants: NEIGHBOURS, PATCH, SPECTRUM.
// Needs: REAL.
// Shapes: correlation (PATCH + 1, PATCH), by displacement and frequency, the last row 0; covariance (APARTS * APARTS + 1, PATCH,
//   PATCH), the last one 0, the first one the variances of a single patch; codes, see stack_variances.h: dy * APARTS + dx of each
//   pair, or APART.

#include "bm3d/stack_variances.h"

// Displacements along an axis at which patches share noise, 0 included. Correlated noise reaches LAGS = 4 pixels further.
#define APARTS (PATCH + 4 * SPECTRUM)
// Code of a pair that shares no noise. It points to the row of zeros, so that pairs need no test.
#define APART (APARTS * APARTS)
#define FOUR_APART (0x01010101u * APART)

static inline uchar pair_code(int dy, int dx)
{
    return abs(dy) < APARTS && abs(dx) < APARTS ? abs(dy) * APARTS + abs(dx) : APART;
}

// The same for two patches at (dt, dz, dy, dx). The noise of different frames is independent.
static inline uchar overlap_code(int4 one, int4 other)
{
    return one.x == other.x ? pair_code(one.z - other.z, one.w - other.w) : APART;
}
