// Sums along the rows of patches, from the strips of a work-item and its neighbours.
//
// Constants: COLUMNS, WARP_ROWS. Needs: PATCH, GROUP_X, ROWS, WHOLE, OVER, search/sliding_rows.h.

#if WARP_ROWS
#include "common/from_right.h"
#endif

// Distances of the references of an item that lie beside each other.
#if WARP_ROWS
// Sum of `count` values: that of the item, and of those to its right.
static inline float add_right(float value, int count)
{
    float total = 0.0f;
    float run = value;
    int done = 0;
    #pragma unroll
    for (int width = 1; width <= 16; width *= 2) {
        if (count & width) {
            total += done ? from_right(run, done) : run;
            done += width;
        }
        if (2 * width <= count)
            run += from_right(run, width);
    }
    return total;
}

static inline void add_strips(Sums (*sums)[ROWS], int r, float *distances)
{
#if COLUMNS == 1
    distances[0] = add_right(sums[0][r].wide, WHOLE);
    if (OVER)
        distances[0] += from_right(sums[0][r].narrow, WHOLE);
#elif PATCH % 2
    const float pairs = add_right(sums[0][r].wide + sums[1][r].wide, PATCH / 2);
    distances[0] = pairs + from_right(sums[0][r].wide, PATCH / 2);
    distances[1] = sums[1][r].wide + from_right(pairs, 1);
#else
    distances[0] = add_right(sums[0][r].wide + sums[1][r].wide, PATCH / 2);
    distances[1] = add_right(sums[1][r].wide + from_right(sums[0][r].wide, 1), PATCH / 2);
#endif
}
#else
static inline void add_strips(__local const Sums *row, float *distances)
{
    #pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
        const int first = get_local_id(0) * COLUMNS + c;
        float sum = OVER ? row[min(first + WHOLE, GROUP_X * COLUMNS - 1)].narrow : 0.0f;
        for (int k = 0; k < WHOLE; ++k)
            sum += row[min(first + k, GROUP_X * COLUMNS - 1)].wide;
        distances[c] = sum;
    }
}
#endif
