// Sums of squared differences down the columns of ROWS patches that lie below each other, and along a row of such sums.
//
// Constants: RADIUS, ROWS, GAUSSIAN. Needs: common/lanes.h.
// Rows that several patches share are added up once: a run of at most PATCH patches begins with the sums from one row upwards, and
// goes on with those downwards. No sum is taken off another, which would lose precision, and the order depends on the row alone.

#define PATCH (2 * RADIUS + 1)
// Rows that ROWS patches reach.
#define REACHED (ROWS + PATCH - 1)

static inline void column_sums(const real *differences, __constant float *taps, real *found)
{
    if (GAUSSIAN) {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j)
            found[j] = 0.0f;
        #pragma unroll
        for (int row = 0; row < REACHED; ++row) {
            const real square = differences[row] * differences[row];
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
            sum = fma(differences[row], differences[row], sum);
            if (row < ROWS)
                found[row] = sum;
        }
        sum = 0.0f;
        #pragma unroll
        for (int row = run + PATCH; row < run + 2 * PATCH - 1; ++row)
            if (row - PATCH + 1 < ROWS) {
                sum = fma(differences[row], differences[row], sum);
                found[row - PATCH + 1] += sum;
            }
    }
}
