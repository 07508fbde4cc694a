// Exact unbiased inverse of stabilise_speckle.cl, in place: the intensity whose logarithms have these means.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs.
// Arguments: values from `first` on, `count` of them; bias = digamma(looks) - log(looks), the mean logarithm of the noise.
// Shapes: values (at least first + count).

__kernel void inverse_speckle(__global float *values, ulong first, ulong count, float bias)
{
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, start + VALUES);
    __global float *mine = values + first;
    for (size_t k = start; k < stop; k++)
        mine[k] = exp(mine[k] - bias);
}
