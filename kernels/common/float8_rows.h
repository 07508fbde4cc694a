// Rows of eight pixels as vectors, for CPUs.

// One unaligned access each: PoCL splits vload8 and vstore8 into pairs.
typedef float8 UNALIGNED __attribute__((aligned(4)));
typedef int8 UNALIGNED_INT __attribute__((aligned(4)));
#define ROW(pointer) (*(__global const UNALIGNED *)(pointer))

// Sum of the eight lanes.
static inline float lanes_sum(float8 v)
{
    const float4 four = v.lo + v.hi;
    const float2 two = four.lo + four.hi;
    return two.x + two.y;
}

// Three perfect shuffles of the rows' values transpose eight rows.
static inline void transpose(float8 *v)
{
    #pragma unroll
    for (int stage = 0; stage < 3; ++stage) {
        float8 w[8];
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float8 a = v[i], b = v[i + 4];
            w[2 * i] = (float8)(a.s0, b.s0, a.s1, b.s1, a.s2, b.s2, a.s3, b.s3);
            w[2 * i + 1] = (float8)(a.s4, b.s4, a.s5, b.s5, a.s6, b.s6, a.s7, b.s7);
        }
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            v[i] = w[i];
    }
}
