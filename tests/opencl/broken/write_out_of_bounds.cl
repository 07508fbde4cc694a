// Fault: writes one element before the buffer.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    out[i - 1] = in[i];
}
