// Converts integer grey levels to float, which is exact.
//
// Grid: one work-item for VALUES neighbours: ceil(count / VALUES), rounded up to whole work-groups.
// Constants: BITS, SIGNED, see common/level_type.h; VALUES = 1 on GPUs, where neighbouring work-items load neighbouring values;
//   many on CPUs, where the loop is vectorised.
// Shapes: levels, values (count).

#include "common/level_type.h"

__kernel void levels_to_float(__global const Level *levels, ulong count, __global float *values)
{
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)count, start + VALUES);
    for (size_t k = start; k < stop; k++)
        values[k] = (float)levels[k];
}
