// Sums of a search that slides down the window, for the columns of a work-item.
//
// Needs: PATCH, STEP, ROWS, WIDTH, HEIGHT, WHOLE, OVER, STRIPS, SHIFTED, see search_sliding.cl.

// Sums of squared differences over the rows of a patch, for each row of patches: over all columns of a strip, and its first OVER.
typedef struct {
    float wide, narrow;
} Sums;

#if STEP == 1
// Of column c.
static inline void add_rows(const float *reference, const float *shifted, int c, int turn, Sums *sums)
{
    float e[HEIGHT];
    #pragma unroll
    for (int i = 0; i < HEIGHT; ++i)
        e[i] = reference[i * WIDTH + c] - (&SHIFTED(i))[c];
    // What all share, then rows above it, then rows below it.
    float sum = 0.0f;
    #pragma unroll
    for (int i = ROWS - 1; i < PATCH; ++i)
        sum = fma(e[i], e[i], sum);
    sums[ROWS - 1].wide = sum;
    #pragma unroll
    for (int r = 0; r < ROWS; ++r)
        sums[r].narrow = 0.0f;
    #pragma unroll
    for (int r = ROWS - 2; r >= 0; --r) {
        sum = fma(e[r], e[r], sum);
        sums[r].wide = sum;
    }
    float below = 0.0f;
    #pragma unroll
    for (int r = 1; r < ROWS; ++r) {
        below = fma(e[PATCH + r - 1], e[PATCH + r - 1], below);
        sums[r].wide += below;
    }
}
#else
static inline void add_rows(const float *reference, const float *shifted, int c, int turn, Sums *sums)
{
    Sums whole[ROWS + STRIPS - 1];
    #pragma unroll
    for (int b = 0; b < ROWS + STRIPS - 1; ++b) {
        Sums first;  // of the first OVER rows
        first.wide = first.narrow = 0.0f;
        float within = 0.0f, beside = 0.0f;
        #pragma unroll
        for (int i = 0; i < STEP; ++i) {
            if (b * STEP + i < HEIGHT) {
                #pragma unroll
                for (int j = 0; j < STEP; ++j) {
                    const float e = reference[(b * STEP + i) * WIDTH + j] - (&SHIFTED(b * STEP + i))[j];
                    if (j < OVER)
                        within = fma(e, e, within);
                    else
                        beside = fma(e, e, beside);
                }
                if (i == OVER - 1) {
                    first.narrow = within;
                    first.wide = within + beside;
                }
            }
        }
        whole[b].narrow = within;
        whole[b].wide = within + beside;
        if (b >= STRIPS - 1) {
            const int r = b - STRIPS + 1;
            sums[r] = first;
            #pragma unroll
            for (int k = 0; k < WHOLE; ++k) {
                sums[r].wide += whole[r + k].wide;
                sums[r].narrow += whole[r + k].narrow;
            }
        }
    }
}
#endif
