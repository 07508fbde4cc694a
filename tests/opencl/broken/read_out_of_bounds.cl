// Fault: reads one element beyond the buffer of 16.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = in[i + 1];
}
