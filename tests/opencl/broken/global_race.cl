// Fault: all work-items, also those of different groups, add to one element.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = in[i];
    out[0] += in[i];
}
