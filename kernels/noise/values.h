// What kernels that stabilise noise, and their inverses, have in common: they change single values in place.
//
// Grid: one work-item for VALUES neighbours, ceil(count / VALUES) rounded up to whole work-groups.
// Constants: VALUES = 1 on GPUs; many on CPUs, where the loop becomes vectors.
// Shapes: values (at least first + count), of which those from `first` on are changed.

#define VALUE_ARGUMENTS __global float *values, ulong first, ulong count

// For each value `mine[k]` of a work-item.
#define EACH_VALUE(k)                                           \
    const size_t begin = get_global_id(0) * VALUES;             \
    const size_t stop = min((size_t)count, begin + VALUES);     \
    __global float *mine = values + first;                      \
    for (size_t k = begin; k < stop; k++)
