// Fault: what is stored depends on an element that nobody wrote.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    out[i] = out[i] > 0.5f ? in[i] : 2.0f * in[i];
}
