// Exact unbiased inverse of stabilise_magnitudes.cl, in place: the signal whose stabilised magnitudes have these means.
// Foi, IEEE ISBI 2011.
//
// Arguments: sigma, grey levels; the square of the signal, in sigma squared, as a table of `entries` values `1 / steps` apart
//   from `start` on, which is what noise alone is stabilised to on average: below it the signal is 0, or with `is_signed` as far
//   below 0 as it would lie above. Beyond the table's end the mean is s + 1 / (4 s).
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values, table (entries).

#include "noise/table.h"

__kernel void inverse_magnitudes(VALUE_ARGUMENTS, float sigma, __global const float *table,
                                 int entries, float start, float steps, int is_signed)
{
    const float end = start + (float)(entries - 1) / steps;
    EACH_VALUE(k) {
        const float beyond = mine[k] - start;
        const float above = start + (is_signed ? fabs(beyond) : fmax(beyond, 0.0f));
        const float far = fmax(above, end);
        const float near = sqrt(fmax(looked_up(table, entries, start, steps, above), 0.0f));
        const float signal = above < end ? near : 0.5f * (far + sqrt(fma(far, far, -1.0f)));
        mine[k] = sigma * (beyond < 0.0f ? -signal : signal);
    }
}
