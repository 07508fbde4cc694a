// Fault: no barrier between writing local memory and reading what a neighbour wrote.
__kernel void broken(__global const float *in, __global float *out)
{
    __local float shared[8];
    const int i = get_global_id(0);
    shared[get_local_id(0)] = in[i];
    out[i] = shared[7 - get_local_id(0)];
}
