// The transform along a stack of `size` values, a power of two up to NEIGHBOURS, and its inverse. `size` may differ from group to
// group, but each value must have a fixed register: smaller groups skip some of the stages.
//
// Constants: STACK: HAAR_STACK or HADAMARD, in place (coefficients stay where the stages leave them; 0 is the sum), or DCT_STACK.
// Needs: REAL, NEIGHBOURS, patch_transform.h.
// The forward transform multiplies the variance of white noise by stack_gain(size), and inverse(forward(v)) is
// stack_gain(size) * v: leaving the factors out halves the work of a Hadamard transform.

#define HAAR_STACK 0
#define HADAMARD 1
#define DCT_STACK 2

static inline float stack_gain(int size)
{
#if STACK == HADAMARD
    return (float)size;
#else
    return 1.0f;
#endif
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

#if STACK == DCT_STACK
// cos(t pi / 64) for the first quarter period.
__constant float QUARTER[33] = {
    1.00000000f, 0.99879546f, 0.99518473f, 0.98917651f, 0.98078528f, 0.97003125f, 0.95694034f, 0.94154407f,
    0.92387953f, 0.90398929f, 0.88192126f, 0.85772861f, 0.83146961f, 0.80320753f, 0.77301045f, 0.74095113f,
    0.70710678f, 0.67155895f, 0.63439328f, 0.59569930f, 0.55557023f, 0.51410274f, 0.47139674f, 0.42755509f,
    0.38268343f, 0.33688985f, 0.29028468f, 0.24298018f, 0.19509032f, 0.14673047f, 0.09801714f, 0.04906767f,
    0.00000000f};

// cos(t pi / 64)
static inline float cosine(int t)
{
    const int half_turns = (t >> 6) & 1;
    const int within = t & 63;
    const float value = within <= 32 ? QUARTER[within] : -QUARTER[64 - within];
    return half_turns ? -value : value;
}

// Entry (k, j) of the orthonormal DCT of `size` values.
static inline float stack_cosine(int k, int j, int size)
{
    const float norm = k == 0 ? rsqrt((float)size) : sqrt(2.0f / size);
    return norm * cosine(k * (2 * j + 1) * (32 / size));
}

static inline void multiply(REAL *v, int size, bool transposed)
{
    REAL in[NEIGHBOURS];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        in[k] = v[k];
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k) {
        REAL sum = (REAL)0.0f;
        if (k < size)
            for (int j = 0; j < size; ++j)
                sum += (transposed ? stack_cosine(j, k, size) : stack_cosine(k, j, size)) * in[j];
        v[k] = sum;
    }
}

static inline void stack_forward(REAL *v, int size)
{
    multiply(v, size, false);
}

static inline void stack_inverse(REAL *v, int size)
{
    multiply(v, size, true);
}
#endif
