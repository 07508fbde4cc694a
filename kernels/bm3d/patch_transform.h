// The transform of eight values and its inverse. Applied along y, then along x, it is the 2D transform of a patch.
//
// Constants: TRANSFORM: BIOR15 (three levels, periodic), DCT or DFT (real: cosines and sines). All preserve the standard
//   deviation of white noise in every coefficient; coefficient 0 is the mean times sqrt(8).
// Needs: REAL, which is float or a vector of eight floats that are transformed side by side.

#define BIOR15 0
#define DCT 1
#define DFT 2

#define SQRT_HALF 0.70710678f

#if TRANSFORM == BIOR15
// By lifting: the biorthogonal 1.5 wavelet is Haar's, with the sums corrected by neighbouring differences. With eight periodic
// values its outer taps cancel; on the next two levels all taps except Haar's cancel.
#define BESIDE -0.171875f
// Norms of the rows on levels 2 and 3, which scale the noise.
#define NORM2 1.02911711f
#define NORM3 1.05743277f

static inline void correct_sums(REAL *s, const REAL *d, float by)
{
    s[0] += by * (d[3] - d[1]);
    s[1] += by * (d[0] - d[2]);
    s[2] += by * (d[1] - d[3]);
    s[3] += by * (d[2] - d[0]);
}

static inline void transform_forward(REAL *v)
{
    REAL s[4], d[4];
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
        s[n] = SQRT_HALF * (v[2 * n] + v[2 * n + 1]);
        d[n] = SQRT_HALF * (v[2 * n] - v[2 * n + 1]);
    }
    correct_sums(s, d, BESIDE);
    const REAL a = s[0] + s[1];
    const REAL b = s[2] + s[3];
    v[0] = 0.5f * (a + b);
    v[1] = (0.5f / NORM3) * (a - b);
    v[2] = (SQRT_HALF / NORM2) * (s[0] - s[1]);
    v[3] = (SQRT_HALF / NORM2) * (s[2] - s[3]);
    #pragma unroll
    for (int n = 0; n < 4; ++n)
        v[4 + n] = d[n];
}

static inline void transform_inverse(REAL *v)
{
    const REAL a = 0.5f * v[0] + (0.5f * NORM3) * v[1];
    const REAL b = 0.5f * v[0] - (0.5f * NORM3) * v[1];
    REAL s[4], d[4];
    s[0] = a + (SQRT_HALF * NORM2) * v[2];
    s[1] = a - (SQRT_HALF * NORM2) * v[2];
    s[2] = b + (SQRT_HALF * NORM2) * v[3];
    s[3] = b - (SQRT_HALF * NORM2) * v[3];
    #pragma unroll
    for (int n = 0; n < 4; ++n)
        d[n] = v[4 + n];
    correct_sums(s, d, -BESIDE);
    #pragma unroll
    for (int n = 0; n < 4; ++n) {
        v[2 * n] = SQRT_HALF * (s[n] + d[n]);
        v[2 * n + 1] = SQRT_HALF * (s[n] - d[n]);
    }
}
#endif

#if TRANSFORM == DCT
// 0.5 cos(k pi / 16)
#define C1 0.49039264f
#define C2 0.46193977f
#define C3 0.41573481f
#define C4 0.35355339f
#define C5 0.27778512f
#define C6 0.19134172f
#define C7 0.09754516f

static inline void transform_forward(REAL *v)
{
    const REAL s0 = v[0] + v[7], s1 = v[1] + v[6], s2 = v[2] + v[5], s3 = v[3] + v[4];
    const REAL d0 = v[0] - v[7], d1 = v[1] - v[6], d2 = v[2] - v[5], d3 = v[3] - v[4];
    const REAL even = s0 + s3, odd = s1 + s2;
    v[0] = C4 * (even + odd);
    v[4] = C4 * (even - odd);
    v[2] = C2 * (s0 - s3) + C6 * (s1 - s2);
    v[6] = C6 * (s0 - s3) - C2 * (s1 - s2);
    v[1] = C1 * d0 + C3 * d1 + C5 * d2 + C7 * d3;
    v[3] = C3 * d0 - C7 * d1 - C1 * d2 - C5 * d3;
    v[5] = C5 * d0 - C1 * d1 + C7 * d2 + C3 * d3;
    v[7] = C7 * d0 - C5 * d1 + C3 * d2 - C1 * d3;
}

static inline void transform_inverse(REAL *v)
{
    const REAL even = C4 * (v[0] + v[4]), odd = C4 * (v[0] - v[4]);
    const REAL p = C2 * v[2] + C6 * v[6], q = C6 * v[2] - C2 * v[6];
    const REAL s0 = even + p, s3 = even - p, s1 = odd + q, s2 = odd - q;
    const REAL d0 = C1 * v[1] + C3 * v[3] + C5 * v[5] + C7 * v[7];
    const REAL d1 = C3 * v[1] - C7 * v[3] - C1 * v[5] - C5 * v[7];
    const REAL d2 = C5 * v[1] - C1 * v[3] + C7 * v[5] + C3 * v[7];
    const REAL d3 = C7 * v[1] - C5 * v[3] + C3 * v[5] - C1 * v[7];
    v[0] = s0 + d0;
    v[7] = s0 - d0;
    v[1] = s1 + d1;
    v[6] = s1 - d1;
    v[2] = s2 + d2;
    v[5] = s2 - d2;
    v[3] = s3 + d3;
    v[4] = s3 - d3;
}
#endif

#if TRANSFORM == DFT
// Orthonormal: mean, cosines and sines of 1, 2 and 3 periods, alternating sum.
#define R8 0.35355339f

static inline void transform_forward(REAL *v)
{
    const REAL a0 = v[0] + v[4], a1 = v[1] + v[5], a2 = v[2] + v[6], a3 = v[3] + v[7];
    const REAL b0 = v[0] - v[4], b1 = v[1] - v[5], b2 = v[2] - v[6], b3 = v[3] - v[7];
    const REAL even = a0 + a2, odd = a1 + a3;
    const REAL c = SQRT_HALF * (b1 - b3), s = SQRT_HALF * (b1 + b3);
    v[0] = R8 * (even + odd);
    v[7] = R8 * (even - odd);
    v[3] = 0.5f * (a0 - a2);
    v[4] = 0.5f * (a1 - a3);
    v[1] = 0.5f * (b0 + c);
    v[5] = 0.5f * (b0 - c);
    v[2] = 0.5f * (s + b2);
    v[6] = 0.5f * (s - b2);
}

static inline void transform_inverse(REAL *v)
{
    const REAL even = R8 * (v[0] + v[7]), odd = R8 * (v[0] - v[7]);
    const REAL a0 = even + 0.5f * v[3], a2 = even - 0.5f * v[3];
    const REAL a1 = odd + 0.5f * v[4], a3 = odd - 0.5f * v[4];
    const REAL b0 = 0.5f * (v[1] + v[5]), b2 = 0.5f * (v[2] - v[6]);
    const REAL c = (0.5f * SQRT_HALF) * (v[1] - v[5]), s = (0.5f * SQRT_HALF) * (v[2] + v[6]);
    const REAL b1 = s + c, b3 = s - c;
    v[0] = a0 + b0;
    v[4] = a0 - b0;
    v[1] = a1 + b1;
    v[5] = a1 - b1;
    v[2] = a2 + b2;
    v[6] = a2 - b2;
    v[3] = a3 + b3;
    v[7] = a3 - b3;
}
#endif
