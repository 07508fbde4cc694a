// Functions of vectors that kernels for CPUs call, as a test of the compiler: fma, sqrt, exp, limits, and a branch on any lane.
//
// y = sqrt(x * x + 2), limited to 1.5 ... 12; where a lane of a vector is above 10, exp(-y) takes the place of y in all of its lanes. The
// bits of x are limited and shifted as integers.
//
// Grid: one work-item a vector. Constants: LANES.
// Shapes: values, out, bits ((work-items) * LANES).

#include "common/key_lanes.h"

__kernel void vector_functions(__global const float *values, __global float *out, __global uint *bits)
{
    const size_t place = get_global_id(0) * LANES;
    const REAL x = LOAD(values + place);
    REAL y = fmin(fmax(sqrt(fma(x, x, (REAL)(2.0f))), (REAL)(1.5f)), (REAL)(12.0f));
    if (ANY(y > 10.0f))
        y = exp(-y);
    STORE_LANES(y, out + place);
    STORE_LANES(max(min(AS_KEY(x), (KEY)(0x40A00000u)), (KEY)(0x3F800000u)) >> 3, bits + place);
}
