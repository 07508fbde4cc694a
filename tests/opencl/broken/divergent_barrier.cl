// Fault: only some work-items of a group reach the barrier.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    if (i % 2)
        barrier(CLK_GLOBAL_MEM_FENCE);
    out[i] = in[i];
}
