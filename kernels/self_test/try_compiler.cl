// What a compiler must get right before a device is used: functions of vectors, barriers within a loop, and long loops.
//
// out: y = sqrt(x * x + 2), limited to 1.5 ... 12; where a lane of a vector is above 10, exp(-y) takes the place of y in all of its lanes.
// bits: those of x, limited and shifted as integers. sums: of the numbers of all items of a group up to each, through local memory.
// total: that of all turns of a loop. Mesa's llvmpipe ends loops early, once a work-item has made 65,535 turns in all of its loops together.
//
// Grid: one work-item a vector, in groups of GROUP. Constants: LANES, GROUP, TURNS.
// Shapes: values, out, bits ((work-items) * LANES), sums (work-items), total (1).

#include "common/key_lanes.h"

__kernel void try_compiler(
    __global const float *values, __global float *out, __global uint *bits, __global int *sums, __global uint *total)
{
    __local int shared[GROUP];
    const size_t place = get_global_id(0) * LANES;
    const REAL x = LOAD(values + place);
    REAL y = fmin(fmax(sqrt(fma(x, x, (REAL)(2.0f))), (REAL)(1.5f)), (REAL)(12.0f));
    if (ANY(y > 10.0f))
        y = exp(-y);
    STORE_LANES(y, out + place);
    STORE_LANES(max(min(AS_KEY(x), (KEY)(0x40A00000u)), (KEY)(0x3F800000u)) >> 3, bits + place);

    const int item = get_local_id(0);
    shared[item] = get_global_id(0);
    for (int shift = 1; shift < GROUP; shift *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const int before = item < shift ? 0 : shared[item - shift];
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[item] += before;
    }
    sums[get_global_id(0)] = shared[item];

    if (get_global_id(0) == 0) {
        uint sum = 0;
        #pragma unroll 1
        for (uint turn = 0; turn < TURNS; ++turn)
            sum = 3 * sum + as_uint(values[turn % 64]);
        total[0] = sum;
    }
}
