// Stabilise Rician noise in place: magnitudes to values whose noise has a standard deviation of about 1.
// Foi, IEEE ISBI 2011, with a curve of our own: docs/methods/noise_models.md.
//
// Arguments: 1 / sigma; the curve as a table of `entries` values `1 / steps` apart from `start` on, in sigma; beyond its end
//   the curve is its asymptote. Negative magnitudes are taken as 0.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values, table (entries).

#include "noise/table.h"

__kernel void stabilise_magnitudes(VALUE_ARGUMENTS, float per_sigma, __global const float *table,
                                   int entries, float start, float steps)
{
    const float end = start + (float)(entries - 1) / steps;
    EACH_VALUE(k) {
        const float magnitude = mine[k] * per_sigma;
        const float far = fmax(magnitude, end);
        const float near = looked_up(table, entries, start, steps, magnitude);
        mine[k] = magnitude > end ? sqrt(fma(far, far, -0.5f)) : near;
    }
}
