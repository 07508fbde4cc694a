// Stabilise Rician noise in place: magnitudes to values whose noise has a standard deviation of about 1.
// Foi, IEEE ISBI 2011, with a curve of our own: docs/methods/noise_models.md.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs.
// Arguments: values from `first` on, `count` of them, grey levels; 1 / sigma; the curve as a table of `entries` values `1 / steps`
//   apart from `start` on, in sigma; beyond its end the curve is its asymptote. Negative magnitudes are taken as 0.
// Shapes: values (at least first + count), table (entries).

#include "noise/table.h"

__kernel void stabilise_magnitudes(__global float *values, ulong first, ulong count, float per_sigma, __global const float *table,
                                   int entries, float start, float steps)
{
    const size_t begin = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, begin + VALUES);
    const float end = start + (float)(entries - 1) / steps;
    __global float *mine = values + first;
    for (size_t k = begin; k < stop; k++) {
        const float magnitude = mine[k] * per_sigma;
        const float far = fmax(magnitude, end);
        const float near = looked_up(table, entries, start, steps, magnitude);
        mine[k] = magnitude > end ? sqrt(fma(far, far, -0.5f)) : near;
    }
}
