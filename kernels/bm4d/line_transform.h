// The transform of a line of 1, 2, 4 or 8 values and its inverse. Applied along the three axes, it is the transform of a cube.
//
// All preserve the standard deviation of white noise in every coefficient. With two or four periodic values the biorthogonal 1.5
// wavelet is Haar's: all other taps cancel.
// Constants: TRANSFORM, numbered as in bm3d/patch_transform.h, which transforms eight values. Needs: REAL.

#include "bm3d/patch_transform.h"

#define COS4_1 0.65328148f
#define COS4_3 0.27059805f

static inline void four_forward(REAL *v)
{
#if TRANSFORM == DCT
    const REAL s0 = v[0] + v[3], s1 = v[1] + v[2], d0 = v[0] - v[3], d1 = v[1] - v[2];
    v[0] = 0.5f * (s0 + s1);
    v[1] = COS4_1 * d0 + COS4_3 * d1;
    v[2] = 0.5f * (s0 - s1);
    v[3] = COS4_3 * d0 - COS4_1 * d1;
#else
    const REAL s0 = v[0] + v[1], s1 = v[2] + v[3], d0 = v[0] - v[1], d1 = v[2] - v[3];
    v[0] = 0.5f * (s0 + s1);
    v[1] = 0.5f * (s0 - s1);
    v[2] = SQRT_HALF * d0;
    v[3] = SQRT_HALF * d1;
#endif
}

static inline void four_inverse(REAL *v)
{
#if TRANSFORM == DCT
    const REAL s0 = 0.5f * (v[0] + v[2]), s1 = 0.5f * (v[0] - v[2]);
    const REAL d0 = COS4_1 * v[1] + COS4_3 * v[3], d1 = COS4_3 * v[1] - COS4_1 * v[3];
    v[0] = s0 + d0;
    v[3] = s0 - d0;
    v[1] = s1 + d1;
    v[2] = s1 - d1;
#else
    const REAL s0 = 0.5f * (v[0] + v[1]), s1 = 0.5f * (v[0] - v[1]);
    const REAL d0 = SQRT_HALF * v[2], d1 = SQRT_HALF * v[3];
    v[0] = s0 + d0;
    v[1] = s0 - d0;
    v[2] = s1 + d1;
    v[3] = s1 - d1;
#endif
}

// Transform the `length` values of a line, `stride` apart; two values are transformed back as they were.
#define LINE_FUNCTION(NAME, EIGHT, FOUR) \
static inline void NAME(REAL *v, int length, int stride) \
{ \
    REAL line[8]; \
    _Pragma("unroll") \
    for (int k = 0; k < length; ++k) \
        line[k] = v[k * stride]; \
    if (length == 8) \
        EIGHT(line); \
    else if (length == 4) \
        FOUR(line); \
    else if (length == 2) { \
        const REAL a = line[0], b = line[1]; \
        line[0] = SQRT_HALF * (a + b); \
        line[1] = SQRT_HALF * (a - b); \
    } \
    _Pragma("unroll") \
    for (int k = 0; k < length; ++k) \
        v[k * stride] = line[k]; \
}
LINE_FUNCTION(line_forward, transform_forward, four_forward)
LINE_FUNCTION(line_inverse, transform_inverse, four_inverse)
