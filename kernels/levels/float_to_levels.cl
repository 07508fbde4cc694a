// Rounds floats to integer grey levels, half to even. Values outside the range are clipped and counted. NaN becomes 0 and is not
// counted.
//
// Grid: (ceil(kept_x / VALUES) rounded up to whole work-groups, kept_y, frames); a work-item converts VALUES neighbours of a row.
// Constants: BITS, SIGNED, see common/level_type.h; VALUES as in levels_to_float.cl.
// Shapes: values (frames, ny, nx), of which the first kept_y rows and kept_x columns are converted; levels (frames, kept_y,
//   kept_x); clipped (tiles): the number of clipped values of every `planes` frames is added to an entry, from `tile` on.

#include "common/level_type.h"

// Adding and subtracting this number rounds smaller values as `rint` does. PoCL's `rint` is a function call for each value
// and takes three times as long.
#define NO_FRACTION 12582912.0f

__kernel void float_to_levels(__global const float *values, ulong ny, ulong nx, ulong kept_y, ulong kept_x,
                              __global Level *levels, __global int *clipped, int tile, int planes)
{
    const size_t y = get_global_id(1);
    const size_t frame = get_global_id(2);
    const size_t start = get_global_id(0) * VALUES;
    const size_t stop = min((size_t)kept_x, start + VALUES);
    values += (frame * ny + y) * nx;
    levels += (frame * kept_y + y) * kept_x;
    int beyond = 0;
    for (size_t x = start; x < stop; x++) {
        const float value = values[x];
        // Keep far outliers within the range where this rounding works.
        const float bounded = value < LOWEST - 1.0f ? LOWEST - 1.0f
                            : value > HIGHEST + 1.0f ? HIGHEST + 1.0f
                            : value == value ? value : 0.0f;
        const float level = (bounded + NO_FRACTION) - NO_FRACTION;
        const float fits = level < LOWEST ? LOWEST : level > HIGHEST ? HIGHEST : level;
        beyond += level != fits;
        levels[x] = (Level)fits;
    }
    // An integer sum does not depend on the order of additions.
    if (beyond)
        atomic_add(clipped + tile + (int)frame / planes, beyond);
}
