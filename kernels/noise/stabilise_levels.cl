// Stabilise noise whose sigma is a table over grey levels, in place: the integral of 1 / sigma.
//
// Arguments: 1 / sigma below and above the table; the integral as a table of `entries` values `1 / steps` apart from `start`
//   on.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values, table (entries).

#include "noise/table.h"

__kernel void stabilise_levels(VALUE_ARGUMENTS, float below, float above,
                               __global const float *table, int entries, float start, float steps)
{
    EACH_VALUE(k)
        mine[k] = continued(table, entries, start, steps, below, above, mine[k]);
}
