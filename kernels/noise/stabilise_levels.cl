// Stabilise noise whose sigma is a table over grey levels, in place: the integral of 1 / sigma.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs.
// Arguments: values from `first` on, `count` of them, grey levels; 1 / sigma below and above the table; the integral as a table
//   of `entries` values `1 / steps` apart from `start` on.
// Shapes: values (at least first + count), table (entries).

#include "noise/table.h"

__kernel void stabilise_levels(__global float *values, ulong first, ulong count, float below, float above,
                               __global const float *table, int entries, float start, float steps)
{
    continue_values(values, first, count, below, above, table, entries, start, steps);
}
