// Adds up the part that is removed from each patch: as whole numbers in a tile in local memory (the slab of the work-group), or
// straight in global memory.
//
// Constants: FLOAT_SUMS = 1 adds floats in global memory (the last bits change from run to run); VIDEO = 1 whole numbers.
// Needs: common/atomic_float.h, TILE_X.

// One sum for each pixel of the padded layout, in global memory, instead of slabs.
#define GLOBAL_SUMS (FLOAT_SUMS || VIDEO)
#if GLOBAL_SUMS
#define SUM_SPACE __global
#define SUM_LINE pitch
#else
#define SUM_SPACE __local
#define SUM_LINE TILE_X
#endif
#if FLOAT_SUMS
#define SUM float
#else
#define SUM int
#endif

// Factors of the values of a column to units of the sums. The Kaiser window would be read again after each addition.
static inline void column_factors(float *factors, float factor, __global const float *kaiser)
{
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        factors[i] = factor * kaiser[i];
}

// Adds a column of a patch, times `by` and its factors.
static inline void add_column(SUM_SPACE SUM *sums, int line, const float *column, float by, const float *factors, float largest)
{
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
#if FLOAT_SUMS
        atomic_add_float(sums + i * line, column[i] * by * factors[i]);
#else
        atomic_add(sums + i * line, convert_int_rte(clamp(column[i] * by * factors[i], -largest, largest)));
#endif
    }
}
