// Sums of columns from the work-items on either side, and sums along rows of them.
//
// Constants: RADIUS, GAUSSIAN, COLUMNS, NVIDIA. Needs: PATCH.

// Work-items of a row; those that are only there for their neighbours; columns on either side, in whole items.
#define ITEMS 32
#define HALO ((RADIUS + COLUMNS - 1) / COLUMNS)
#define BESIDE (COLUMNS * HALO)

#if NVIDIA
#include "common/from_right.h"

// The value of an item so many places to the left. A row of items is a warp.
static inline float from_left(float value, int far)
{
    float found;
    asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}
#endif

// Adds up PATCH of the columns that an item and its neighbours know, `first` being RADIUS before those of the item.
static inline void add_columns(const float *first, __constant float *taps, float *found)
{
#if GAUSSIAN || PATCH < COLUMNS
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        found[i] = 0.0f;
        #pragma unroll
        for (int k = 0; k < PATCH; ++k)
            found[i] = GAUSSIAN ? fma(first[i + k], taps[k], found[i]) : found[i] + first[i + k];
    }
#else
    // What all share, then what lies on either side, from there outwards.
    float shared = first[COLUMNS - 1];
    #pragma unroll
    for (int k = COLUMNS; k < PATCH; ++k)
        shared += first[k];
    float left = 0.0f, right = 0.0f;
    found[COLUMNS - 1] = shared;
    #pragma unroll
    for (int i = COLUMNS - 2; i >= 0; --i) {
        left += first[i];
        found[i] = shared + left;
    }
    #pragma unroll
    for (int i = 1; i < COLUMNS; ++i) {
        right += first[PATCH + i - 1];
        found[i] += right;
    }
#endif
}

#if NVIDIA && !GAUSSIAN && HALO > 0
// The sums over the patches around the columns of an item. Items add up what their neighbours need, which saves exchanges.
static inline void row_sums(const float *columns, __constant float *taps, float *found)
{
    // The first columns of the item, and the last ones.
    float begins[COLUMNS], ends[COLUMNS];
    begins[0] = columns[0];
    ends[COLUMNS - 1] = columns[COLUMNS - 1];
    #pragma unroll
    for (int i = 1; i < COLUMNS; ++i) {
        begins[i] = begins[i - 1] + columns[i];
        ends[COLUMNS - 1 - i] = ends[COLUMNS - i] + columns[COLUMNS - 1 - i];
    }
    const float all = begins[COLUMNS - 1];
    float lefts[HALO + 1], rights[HALO + 1];
    #pragma unroll
    for (int far = 1; far <= RADIUS / COLUMNS; ++far) {
        lefts[far] = from_left(all, far);
        rights[far] = from_right(all, far);
    }
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
        found[i] = i > RADIUS ? ends[i - RADIUS] : i + RADIUS < COLUMNS - 1 ? begins[i + RADIUS] : all;
        #pragma unroll
        for (int far = 1; far <= HALO; ++far) {
            // Where the patch begins and ends, in that item.
            const int begin = i - RADIUS + far * COLUMNS, end = i + RADIUS - far * COLUMNS;
            if (begin < COLUMNS)
                found[i] += begin <= 0 ? lefts[far] : from_left(ends[begin], far);
            if (end >= 0)
                found[i] += end >= COLUMNS - 1 ? rights[far] : from_right(begins[end], far);
        }
    }
}
#elif NVIDIA
static inline void row_sums(const float *columns, __constant float *taps, float *found)
{
    float known[BESIDE + COLUMNS + BESIDE];
    #pragma unroll
    for (int i = 0; i < COLUMNS; ++i)
        known[BESIDE + i] = columns[i];
    #pragma unroll
    for (int i = BESIDE - RADIUS; i < BESIDE; ++i) {
        const int far = HALO - i / COLUMNS, to = BESIDE + COLUMNS - 1 + BESIDE - i;
        known[i] = from_left(columns[i % COLUMNS], far);
        known[to] = from_right(columns[to % COLUMNS], far);
    }
    add_columns(known + BESIDE - RADIUS, taps, found);
}
#else
// With columns of a row of items in local memory, (COLUMNS, ITEMS).
static inline void row_sums(__local const float *columns, int lane, __constant float *taps, float *found)
{
    float known[BESIDE + COLUMNS + BESIDE];
    #pragma unroll
    for (int i = BESIDE - RADIUS; i < BESIDE + COLUMNS + RADIUS; ++i) {
        const int item = clamp(lane + i / COLUMNS - HALO, 0, ITEMS - 1);
        known[i] = columns[i % COLUMNS * ITEMS + item];
    }
    add_columns(known + BESIDE - RADIUS, taps, found);
}
#endif
