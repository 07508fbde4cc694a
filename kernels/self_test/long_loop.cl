// Sum in a long loop, as a test of the compiler: that of Mesa's llvmpipe ends loops early, once a work-item has made 65,535 turns in
// all of its loops together.
//
// Grid: one work-item a sum. Constants: TURNS.
// Shapes: values (64), sums (work-items).

__kernel void long_loop(__global const uint *values, __global uint *sums)
{
    uint sum = 0;
    #pragma unroll 1
    for (uint turn = 0; turn < TURNS; ++turn)
        sum = 3 * sum + values[turn % 64];
    sums[get_global_id(0)] = sum;
}
