// Magnitudes of a complex signal to values whose noise has a standard deviation of 1, in place.
// Foi, IEEE ISBI 2011, with a curve of our own: docs/methods/noise_models.md.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs.
// Arguments: values from `first` on, `count` of them, grey levels; 1 / sigma; the curve up to a magnitude of `end` sigma, of
//   `entries` values. Negative magnitudes are taken as 0.
// Shapes: values (at least first + count), table (entries).

#include "noise/table.h"

__kernel void stabilise_magnitudes(__global float *values, ulong first, ulong count, float per_sigma, __global const float *table,
                                   int entries, float end)
{
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, start + VALUES);
    const float steps = (float)(entries - 1) / end;
    __global float *mine = values + first;
    for (size_t k = start; k < stop; k++) {
        const float magnitude = mine[k] * per_sigma;
        const float far = fmax(magnitude, end);
        const float near = looked_up(table, entries, 0.0f, steps, magnitude);
        mine[k] = magnitude > end ? sqrt(fma(far, far, -0.5f)) : near;
    }
}
