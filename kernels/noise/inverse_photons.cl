// Exact unbiased inverse of the generalised Anscombe transform, in place.
// Makitalo and Foi, IEEE Transactions on Image Processing 22 (2013), section III: by an expansion, and what it lacks as a table.
//
// Arguments: offset (grey level without light), gain (grey levels per electron), read_noise (electrons); the table of what the
//   expansion lacks, of `entries` values `1 / steps` apart from `start` on, which is the mean stabilised value without light:
//   below it there is none. The last value is 0.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values, table (entries).

#include "noise/table.h"

__kernel void inverse_photons(VALUE_ARGUMENTS, float offset, float gain, float read_noise,
                              __global const float *table, int entries, float start, float steps)
{
    EACH_VALUE(k) {
        const float stabilised = fmax(mine[k], start);
        const float half_value = 0.5f * stabilised;
        const float square = half_value * half_value;
        // square - read_noise squared, without what float would lose of it
        const float lighter = (half_value - read_noise) * (half_value + read_noise);
        const float lacking = looked_up(table, entries, start, steps, stabilised);
        const float electrons = lighter - 0.125f + 0.125f * read_noise * read_noise / (square * square) + lacking;
        mine[k] = fma(gain, fmax(electrons, 0.0f), offset);
    }
}
