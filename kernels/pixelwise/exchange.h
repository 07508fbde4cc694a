// Sums of columns from the work-items on either side, and sums along rows of them.
//
// Constants: RADIUS, GAUSSIAN, COLUMNS, NVIDIA. Needs: PATCH.

// Work-items of a row; those that are only there for their neighbours; columns on either side, in whole items.
#define ITEMS 32
#define HALO ((RADIUS + COLUMNS - 1) / COLUMNS)
#define BESIDE (COLUMNS * HALO)

// Completes BESIDE + COLUMNS + BESIDE columns of which an item knows its own. A row of items is a warp.
#if NVIDIA
static inline float from_left(float value, int far)
{
    float found;
    asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}

static inline float from_right(float value, int far)
{
    float found;
    asm volatile("shfl.sync.down.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(found) : "f"(value), "r"(far));
    return found;
}

#define EXCHANGE(columns) \
    _Pragma("unroll") \
    for (int i = BESIDE - RADIUS; i < BESIDE; ++i) { \
        const int far = HALO - i / COLUMNS, to = BESIDE + COLUMNS - 1 + BESIDE - i; \
        columns[i] = from_left(columns[BESIDE + i % COLUMNS], far); \
        columns[to] = from_right(columns[BESIDE + to % COLUMNS], far); \
    }
#endif

// The same with those of all items in local memory, (COLUMNS, ITEMS).
#define EXCHANGE_THROUGH(known, columns) \
    _Pragma("unroll") \
    for (int i = BESIDE - RADIUS; i < BESIDE; ++i) { \
        const int far = HALO - i / COLUMNS, to = BESIDE + COLUMNS - 1 + BESIDE - i; \
        columns[i] = known[i % COLUMNS][max(lane - far, 0)]; \
        columns[to] = known[to % COLUMNS][min(lane + far, ITEMS - 1)]; \
    }

// The sums over the patches around the columns of an item.
static inline void row_sums(const float *columns, __constant float *taps, float *found)
{
    const float *first = columns + BESIDE - RADIUS;
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
