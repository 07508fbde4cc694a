// Adds up the part that is removed from each patch: as whole numbers in a tile in local memory (the slab of the work-group), or
// straight in global memory.
//
// Constants: VIDEO.
// Needs: TILE_X.

#if VIDEO
#define SUM_SPACE __global
#define SUM_LINE pitch
#else
#define SUM_SPACE __local
#define SUM_LINE TILE_X
#endif

// Factors of the values of a column to units of the sums. The Kaiser window would be read again after each addition.
static inline void column_factors(float *factors, float factor, __global const float *kaiser)
{
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        factors[i] = factor * kaiser[i];
}

// Adds a column of a patch, times `by` and its factors.
static inline void add_column(SUM_SPACE int *sums, int line, const float *column, float by, const float *factors, float largest)
{
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        atomic_add(sums + i * line, convert_int_rte(clamp(column[i] * by * factors[i], -largest, largest)));
}
