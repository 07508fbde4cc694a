// Sums of squared differences down the columns of ROWS patches that lie below each other, and along a row of such sums.
//
// Constants: RADIUS, ROWS, GAUSSIAN. Needs: common/lanes.h, PATCH.
// Rows that several patches share are added up once: a run of at most PATCH patches begins with the sums from one row upwards, and
// goes on with those downwards. No sum is taken off another, which would lose precision, and the order depends on the row alone.

static inline void column_sums(__global const float *a, __global const float *b, int pitch, __constant float *taps, real *found)
{
    if (GAUSSIAN) {
        #pragma unroll
        for (int j = 0; j < ROWS; ++j)
            found[j] = 0.0f;
        #pragma unroll
        for (int row = 0; row < ROWS + PATCH - 1; ++row) {
            const real difference = AT(b + row * pitch) - AT(a + row * pitch);
            const real square = difference * difference;
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
            const real difference = AT(b + row * pitch) - AT(a + row * pitch);
            sum = fma(difference, difference, sum);
            if (row < ROWS)
                found[row] = sum;
        }
        sum = 0.0f;
        #pragma unroll
        for (int row = run + PATCH; row < run + 2 * PATCH - 1; ++row)
            if (row - PATCH + 1 < ROWS) {
                const real difference = AT(b + row * pitch) - AT(a + row * pitch);
                sum = fma(difference, difference, sum);
                found[row - PATCH + 1] += sum;
            }
    }
}

// Of PATCH neighbouring values, the first one at `columns`, for LANES patches beside each other.
static inline real row_sum(const float *columns, __constant float *taps)
{
    real sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < PATCH; ++i) {
        const real value = *(const unaligned_real *)(columns + i);
        sum = GAUSSIAN ? fma(value, (real)taps[i], sum) : sum + value;
    }
    return sum;
}
