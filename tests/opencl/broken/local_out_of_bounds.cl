// Fault: reads one element beyond local memory.
__kernel void broken(__global const float *in, __global float *out)
{
    __local float shared[8];
    const int i = get_global_id(0);
    shared[get_local_id(0)] = in[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = shared[get_local_id(0) + 1];
}
