// DCT of two, four and eight values, and of a cube of 64, without the factors that make them orthonormal.
//
// Reference: N. Ahmed, T. Natarajan and K. R. Rao, IEEE Transactions on Computers C-23 (1974), 90-93.
// Needs: the type `real`, a number or a vector; constants CUBE_Z, CUBE_Y, CUBE_X, whose product is 64.
// Values of a cube: [z][y][x]. A spectrum is 8 times the orthonormal one, and `backward` of it 64 times the cube.
// Every product that is added is written as fma, so that a compiler has nothing to choose and results do not depend on
//   how a loop is unrolled.
// Cost: 2, 10 and 34 instructions for 2, 4 and 8 values, forward and backward.

#define SLICE (CUBE_Y * CUBE_X)

// sqrt(2) cos(k pi / 8), k = 1, 3, and sqrt(2) cos(k pi / 16), k = 1, 3, 5, 7.
#define A1 1.30656296f
#define A3 0.541196100f
#define B1 1.38703985f
#define B3 1.17587560f
#define B5 0.785694958f
#define B7 0.275899379f

#define FORWARD2(a, b) {const real p = a, q = b; a = p + q; b = p - q;}

#define FORWARD4(a, b, c, d) { \
    const real s0 = a + d, s1 = b + c, d0 = a - d, d1 = b - c; \
    a = s0 + s1; \
    b = fma((real)A1, d0, A3 * d1); \
    c = s0 - s1; \
    d = fma((real)A3, d0, -A1 * d1); \
}

#define BACKWARD4(a, b, c, d) { \
    const real s0 = a + c, s1 = a - c; \
    const real d0 = fma((real)A1, b, A3 * d), d1 = fma((real)A3, b, -A1 * d); \
    a = s0 + d0; \
    b = s1 + d1; \
    c = s1 - d1; \
    d = s0 - d0; \
}

#define SUM4(ka, a, kb, b, kc, c, kd, d) fma((real)(ka), a, fma((real)(kb), b, fma((real)(kc), c, (kd) * d)))

#define FORWARD8(v, i, s) { \
    real e0 = v[i] + v[i + 7 * s], e1 = v[i + s] + v[i + 6 * s]; \
    real e2 = v[i + 2 * s] + v[i + 5 * s], e3 = v[i + 3 * s] + v[i + 4 * s]; \
    const real o0 = v[i] - v[i + 7 * s], o1 = v[i + s] - v[i + 6 * s]; \
    const real o2 = v[i + 2 * s] - v[i + 5 * s], o3 = v[i + 3 * s] - v[i + 4 * s]; \
    FORWARD4(e0, e1, e2, e3) \
    v[i] = e0; v[i + 2 * s] = e1; v[i + 4 * s] = e2; v[i + 6 * s] = e3; \
    v[i + s] = SUM4(B1, o0, B3, o1, B5, o2, B7, o3); \
    v[i + 3 * s] = SUM4(B3, o0, -B7, o1, -B1, o2, -B5, o3); \
    v[i + 5 * s] = SUM4(B5, o0, -B1, o1, B7, o2, B3, o3); \
    v[i + 7 * s] = SUM4(B7, o0, -B5, o1, B3, o2, -B1, o3); \
}

#define BACKWARD8(v, i, s) { \
    real e0 = v[i], e1 = v[i + 2 * s], e2 = v[i + 4 * s], e3 = v[i + 6 * s]; \
    const real c1 = v[i + s], c3 = v[i + 3 * s], c5 = v[i + 5 * s], c7 = v[i + 7 * s]; \
    BACKWARD4(e0, e1, e2, e3) \
    const real o0 = SUM4(B1, c1, B3, c3, B5, c5, B7, c7); \
    const real o1 = SUM4(B3, c1, -B7, c3, -B1, c5, -B5, c7); \
    const real o2 = SUM4(B5, c1, -B1, c3, B7, c5, B3, c7); \
    const real o3 = SUM4(B7, c1, -B5, c3, B3, c5, -B1, c7); \
    v[i] = e0 + o0; v[i + s] = e1 + o1; v[i + 2 * s] = e2 + o2; v[i + 3 * s] = e3 + o3; \
    v[i + 4 * s] = e3 - o3; v[i + 5 * s] = e2 - o2; v[i + 6 * s] = e1 - o1; v[i + 7 * s] = e0 - o0; \
}

#define FOUR(transform, v, i, s) transform(v[i], v[i + s], v[i + 2 * s], v[i + 3 * s])

#if CUBE_X == 8
#define FORWARD_X(v, i) FORWARD8(v, i, 1)
#define BACKWARD_X(v, i) BACKWARD8(v, i, 1)
#else
#define FORWARD_X(v, i) FOUR(FORWARD4, v, i, 1)
#define BACKWARD_X(v, i) FOUR(BACKWARD4, v, i, 1)
#endif
#if CUBE_Y == 8
#define FORWARD_Y(v, i) FORWARD8(v, i, CUBE_X)
#define BACKWARD_Y(v, i) BACKWARD8(v, i, CUBE_X)
#else
#define FORWARD_Y(v, i) FOUR(FORWARD4, v, i, CUBE_X)
#define BACKWARD_Y(v, i) FOUR(BACKWARD4, v, i, CUBE_X)
#endif
#if CUBE_Z == 4
#define FORWARD_Z(v, i) FOUR(FORWARD4, v, i, SLICE)
#define BACKWARD_Z(v, i) FOUR(BACKWARD4, v, i, SLICE)
#elif CUBE_Z == 2
#define FORWARD_Z(v, i) FORWARD2(v[i], v[i + SLICE])
#define BACKWARD_Z(v, i) FORWARD2(v[i], v[i + SLICE])
#else
#define FORWARD_Z(v, i) {}
#define BACKWARD_Z(v, i) {}
#endif

// The slice of a cube that begins at v[first], along x and y.
static inline void forward_slice(real *v, int first)
{
    #pragma unroll
    for (int y = 0; y < CUBE_Y; ++y)
        FORWARD_X(v, first + y * CUBE_X)
    #pragma unroll
    for (int x = 0; x < CUBE_X; ++x)
        FORWARD_Y(v, first + x)
}

static inline void backward_slice(real *v, int first)
{
    #pragma unroll
    for (int x = 0; x < CUBE_X; ++x)
        BACKWARD_Y(v, first + x)
    #pragma unroll
    for (int y = 0; y < CUBE_Y; ++y)
        BACKWARD_X(v, first + y * CUBE_X)
}

// A cube along z, whose slices are spectra.
static inline void forward_depth(real *v)
{
    #pragma unroll
    for (int k = 0; k < SLICE; ++k)
        FORWARD_Z(v, k)
}

static inline void backward_depth(real *v)
{
    #pragma unroll
    for (int k = 0; k < SLICE; ++k)
        BACKWARD_Z(v, k)
}

// Keeps of a spectrum only what is taken from the cube, coefficients of at most `limit`; returns the weight of the cube, one over
// the number of those that are left. The mean is left.
static inline real take_small(real *v, real limit)
{
    const real none = 0.0f, one = 1.0f;
    // Four counts, as each addition waits for the one before.
    real left[4] = {one, none, none, none};
    v[0] = none;
    #pragma unroll
    for (int k = 1; k < 64; ++k) {
        left[k % 4] += select(one, none, islessequal(fabs(v[k]), limit));
        v[k] = select(none, v[k], islessequal(fabs(v[k]), limit));
    }
    return one / ((left[0] + left[1]) + (left[2] + left[3]));
}
