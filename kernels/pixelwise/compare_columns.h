// Squared differences to the pixels at PAIR offsets, one below the other, added up down the columns of patches.
//
// Constants: those of average_columns. Needs: PATCH, REACHED, PLANES, OWN_HEIGHT, HEIGHT, PART, ITEMS.
// Rows are the outer loops: a row of other pixels is read once for all offsets and added to running sums, so that few values are
// held at a time. As in column_sums.h nothing is subtracted again, and the order depends on the row alone.

// A pixel of an item.
#if HELD
#define OWN_SPACE
#define OWN(p, row, i) own[((p) * REACHED + (row)) * COLUMNS + (i)]
#else
#define OWN_SPACE __local
#define OWN(p, row, i) own[(((p) * OWN_HEIGHT + (row)) * COLUMNS + (i)) * ITEMS]
#endif
// A pixel to compare with in local memory, where `pairs` and `last` have their first row. Planes lie there in pairs, whose pixels
// are read together, and an odd one after them. (PoCL 3.1 makes wrong code where the rows before are part of an index.)
#define PLACE(pairs, last, p, row, column) \
    ((p) < PLANES / 2 * 2 ? (pairs) + (((p) / 2 * HEIGHT + (row)) * COLUMNS * PART + (column)) * 2 + (p) % 2 \
                          : (last) + ((p) * HEIGHT + (row)) * COLUMNS * PART + (column))
#define OTHER(p, row, column) *PLACE(pairs, last, p, row, column)

// Adds the squares of a row of others, for those offsets where it meets a row from `low` to below `high` of the item.
static inline void add_row(OWN_SPACE const float *own, __local const float *pairs, __local const float *last, const int *columns_at, const float *ratios,
                           __constant float *taps, int row, int i, int low, int high, float *sums)
{
    #pragma unroll
    for (int p = 0; p < PLANES; ++p) {
        // With EVEN it is 1.
        const float ratio = ratios[p / (2 * RADIUS_Z + 1)] * (GAUSSIAN ? taps[PATCH + p % (2 * RADIUS_Z + 1)] : 1.0f);
        const float other = OTHER(p, row, columns_at[i]);
        #pragma unroll
        for (int q = 0; q < PAIR; ++q)
            if (row - q >= low && row - q < high) {
                const float difference = other - OWN(p, row - q, i);
                sums[q] = fma(EVEN ? difference : difference * ratio, difference, sums[q]);
            }
    }
}

static inline void compare_columns(OWN_SPACE const float *own, __local const float *pairs, __local const float *last, const int *columns_at,
                                   const float *ratios, __constant float *taps, float columns[PAIR][ROWS][COLUMNS])
{
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
#if GAUSSIAN
        #pragma unroll
        for (int row = 0; row < REACHED + PAIR - 1; ++row) {
            float sums[PAIR] = {0.0f};
            add_row(own, pairs, last, columns_at, ratios, taps, row, i, 0, REACHED, sums);
            #pragma unroll
            for (int q = 0; q < PAIR; ++q)
                #pragma unroll
                for (int j = 0; j < ROWS; ++j)
                    if (j <= row - q && row - q < j + PATCH)
                        columns[q][j][i] = fma(sums[q], taps[row - q - j], j < row - q ? columns[q][j][i] : 0.0f);
        }
#else
        #pragma unroll
        for (int run = 0; run < ROWS; run += PATCH) {
            float sums[PAIR] = {0.0f}, more[PAIR] = {0.0f};
            #pragma unroll
            for (int row = run + PATCH + PAIR - 2; row >= run; --row) {
                add_row(own, pairs, last, columns_at, ratios, taps, row, i, run, run + PATCH, sums);
                #pragma unroll
                for (int q = 0; q < PAIR; ++q)
                    if (row - q >= run && row - q < min(run + PATCH, ROWS))
                        columns[q][row - q][i] = sums[q];
            }
            #pragma unroll
            for (int row = run + PATCH; row < min(run + 2 * PATCH - 1, REACHED) + PAIR - 1; ++row) {
                add_row(own, pairs, last, columns_at, ratios, taps, row, i, run + PATCH, min(run + 2 * PATCH - 1, REACHED), more);
                #pragma unroll
                for (int q = 0; q < PAIR; ++q)
                    if (row - q >= run + PATCH && row - q < min(run + 2 * PATCH - 1, REACHED))
                        columns[q][row - q - PATCH + 1][i] += more[q];
            }
        }
#endif
    }
}
