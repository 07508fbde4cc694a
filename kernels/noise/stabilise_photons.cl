// Stabilise photon and read noise in place (generalised Anscombe transform): its standard deviation becomes 1.
// Makitalo and Foi, IEEE Transactions on Image Processing 22 (2013), equation 2.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs, where the loop becomes vectors.
// Arguments: values from `first` on, `count` of them; offset (grey level without light); electrons per grey level; squared
//   read noise plus 3/8, in electrons squared.
// Shapes: values (at least first + count).

__kernel void stabilise_photons(__global float *values, ulong first, ulong count, float offset, float electrons, float added)
{
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, start + VALUES);
    __global float *mine = values + first;
    for (size_t k = start; k < stop; k++)
        mine[k] = 2.0f * sqrt(fmax(fma(mine[k] - offset, electrons, added), 0.0f));
}
