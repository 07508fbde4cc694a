// The transform along a stack of `size` values, a power of two up to NEIGHBOURS, and its inverse. `size` may differ from group to
// group, but each value must have a fixed register: smaller groups skip some of the stages.
//
// Constants: STACK: HAAR_STACK or HADAMARD, in place (coefficients stay where the stages leave them; 0 is the sum).
// Needs: REAL, NEIGHBOURS, patch_transform.h.
// The forward transform multiplies the variance of white noise by stack_gain(size), and inverse(forward(v)) is
// stack_gain(size) * v: leaving the factors out halves the work of a Hadamard transform.

#define HAAR_STACK 0
#define HADAMARD 1

static inline float stack_gain(int size)
{
    return STACK == HADAMARD ? (float)size : 1.0f;
}

#if STACK == HADAMARD
static inline void stack_forward(REAL *v, int size)
{
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2) {
        if (stride < size) {
            #pragma unroll
            for (int k = 0; k < NEIGHBOURS; ++k) {
                if (!(k & stride)) {
                    const REAL a = v[k], b = v[k + stride];
                    v[k] = a + b;
                    v[k + stride] = a - b;
                }
            }
        }
    }
}

static inline void stack_inverse(REAL *v, int size)
{
    stack_forward(v, size);
}
#endif

#if STACK == HAAR_STACK
static inline void haar_stage(REAL *v, int stride)
{
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; k += 2 * stride) {
        const REAL a = v[k], b = v[k + stride];
        v[k] = SQRT_HALF * (a + b);
        v[k + stride] = SQRT_HALF * (a - b);
    }
}

static inline void stack_forward(REAL *v, int size)
{
    #pragma unroll
    for (int stride = 1; stride < NEIGHBOURS; stride *= 2)
        if (stride < size)
            haar_stage(v, stride);
}

static inline void stack_inverse(REAL *v, int size)
{
    #pragma unroll
    for (int stride = NEIGHBOURS / 2; stride > 0; stride /= 2)
        if (stride < size)
            haar_stage(v, stride);
}
#endif
