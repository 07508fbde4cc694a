// Sums of columns from the work-items on either side, and sums along rows of them.
//
// Constants: RADIUS, GAUSSIAN, NVIDIA. Needs: PATCH.

// Work-items of a row; those that are only there for their neighbours; columns on either side, in whole items.
#define ITEMS 32
#define HALO ((RADIUS + 3) / 4)
#define BESIDE (4 * HALO)

// Completes BESIDE + 4 + BESIDE columns of which an item knows its own four. A row of items is a warp.
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
        const int far = HALO - i / 4, to = BESIDE + 3 + BESIDE - i; \
        columns[i] = from_left(columns[BESIDE + i % 4], far); \
        columns[to] = from_right(columns[BESIDE + to % 4], far); \
    }
#endif

// The same with those of all items in local memory, (4, ITEMS).
#define EXCHANGE_THROUGH(known, columns) \
    _Pragma("unroll") \
    for (int i = BESIDE - RADIUS; i < BESIDE; ++i) { \
        const int far = HALO - i / 4, to = BESIDE + 3 + BESIDE - i; \
        columns[i] = known[i % 4][max(lane - far, 0)]; \
        columns[to] = known[to % 4][min(lane + far, ITEMS - 1)]; \
    }

// The sums over the patches around the four columns of an item.
static inline void row_sums(const float *columns, __constant float *taps, float *found)
{
    const float *first = columns + BESIDE - RADIUS;
    if (GAUSSIAN || RADIUS < 2) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            found[i] = 0.0f;
            #pragma unroll
            for (int k = 0; k < PATCH; ++k)
                found[i] = GAUSSIAN ? fma(first[i + k], taps[k], found[i]) : found[i] + first[i + k];
        }
        return;
    }
    // What all four share, then what lies on either side.
    float shared = first[3];
    #pragma unroll
    for (int k = 4; k < PATCH; ++k)
        shared += first[k];
    const float two = first[1] + first[2];
    const float right = first[PATCH] + first[PATCH + 1];
    found[0] = shared + (first[0] + two);
    found[1] = shared + (two + first[PATCH]);
    found[2] = shared + (first[2] + right);
    found[3] = shared + (right + first[PATCH + 2]);
}
