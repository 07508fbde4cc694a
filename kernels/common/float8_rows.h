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
