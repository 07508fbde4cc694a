// Exact unbiased inverse of stabilise_levels.cl, in place: the mean whose stabilised noise has this expected value.
//
// Arguments: sigma below and above the table, grey levels; means as a table of `entries` values `1 / steps` apart from `start`
//   on.
// Grid: as in noise/values.h. Constants: VALUES. Shapes: values, table (entries).

#include "noise/table.h"

__kernel void inverse_levels(VALUE_ARGUMENTS, float below, float above,
                             __global const float *table, int entries, float start, float steps)
{
    EACH_VALUE(k)
        mine[k] = continued(table, entries, start, steps, below, above, mine[k]);
}
