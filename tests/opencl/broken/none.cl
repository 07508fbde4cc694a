// No fault: what is reported of the others does not come from how they are run.
__kernel void sound(__global const float *in, __global float *out)
{
    __local float shared[8];
    const int i = get_global_id(0);
    shared[get_local_id(0)] = in[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = shared[7 - get_local_id(0)] > 0.5f ? 1.0f : 2.0f;
}
