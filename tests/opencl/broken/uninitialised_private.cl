// Fault: one path leaves a private variable without a value.
__kernel void broken(__global const float *in, __global float *out)
{
    const int i = get_global_id(0);
    float best[2];
    best[0] = in[i];
    if (i > 3)
        best[1] = in[i];
    out[i] = best[1] > 0.5f ? best[0] : 2.0f * best[0];
}
