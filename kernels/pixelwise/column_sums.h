// Sums of squared differences down the columns of ROWS patches that lie below each other.
//
// Constants: RADIUS, RADIUS_Z, ROWS, CHANNELS, GAUSSIAN. Needs: common/lanes.h.
// Rows that several patches share are added up once: a run of at most PATCH patches begins with the sums from one row upwards, and
// goes on with those downwards. No sum is taken off another, which would lose precision, and the order depends on the row alone.

#define PATCH (2 * RADIUS + 1)
// Rows that ROWS patches reach.
#define REACHED (ROWS + PATCH - 1)
// Where patches are of one channel and slice, differences are given; else their squares, summed over channels and slices.
#define SINGLE (CHANNELS == 1 && RADIUS_Z == 0)

static inline void column_sums(const real *given, __constant float *taps, real *found)
{
    if (GAUSSIAN) {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j)
            found[j] = 0.0f;
        #pragma unroll
        for (int row = 0; row < REACHED; ++row) {
            const real square = SINGLE ? given[row] * given[row] : given[row];
            #pragma unroll
            for (int j = 0; j < ROWS; ++j)
                if (j <= row && row < j + PATCH)
                    found[j] = fma(square, (real)taps[row - j], found[j]);
        }
        return;
    }
    #pragma unroll
    for (int run = 0; run < ROWS; run += PATCH) {
        real sum = 0.0f;
        #pragma unroll
        for (int row = run + PATCH - 1; row >= run; --row) {
            sum = SINGLE ? fma(given[row], given[row], sum) : sum + given[row];
            if (row < ROWS)
                found[row] = sum;
        }
        sum = 0.0f;
        #pragma unroll
        for (int row = run + PATCH; row < run + 2 * PATCH - 1; ++row)
            if (row - PATCH + 1 < ROWS) {
                sum = SINGLE ? fma(given[row], given[row], sum) : sum + given[row];
                found[row - PATCH + 1] += sum;
            }
    }
}
