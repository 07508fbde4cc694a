// Stabilise speckle in place: the noise of its logarithm does not depend on the mean.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs.
// Arguments: values from `first` on, `count` of them; their lower limit before the logarithm, above 0.
// Shapes: values (at least first + count).

__kernel void stabilise_speckle(__global float *values, ulong first, ulong count, float least)
{
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, start + VALUES);
    __global float *mine = values + first;
    for (size_t k = start; k < stop; k++)
        mine[k] = M_LN2_F * log2(fmax(mine[k], least)); // three times as fast as log on PoCL
}
