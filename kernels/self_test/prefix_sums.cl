// Sums of all values of a work-group up to each, through local memory, as a test of the compiler: barriers within a loop.
//
// Grid: one work-item a value, in groups of GROUP. Constants: GROUP.
// Shapes: values, sums (multiple of GROUP).

__kernel void prefix_sums(__global const int *values, __global int *sums)
{
    __local int shared[GROUP];
    const int item = get_local_id(0);
    shared[item] = values[get_global_id(0)];
    for (int shift = 1; shift < GROUP; shift *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const int before = item < shift ? 0 : shared[item - shift];
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[item] += before;
    }
    sums[get_global_id(0)] = shared[item];
}
