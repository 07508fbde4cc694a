// Keeps the NEIGHBOURS smallest keys that a work-item has seen, sorted, in registers.
//
// Inserting each good candidate at once would be slow: a whole warp runs the insertion when one of its items has a good
// candidate, which is nearly always. Instead, good candidates wait in local memory and are inserted together after a number
// of candidates. A candidate is good with a probability of about 1 / seen, so the intervals grow with `seen`.
//
// Needs: NEIGHBOURS, GROUP_SIZE (work-items of the group), CHUNK (most candidates between two calls of keep_pending).

#define PENDING (CHUNK + 8)

typedef uint KEY;
#include "common/key_order.h"

static inline void insert_pending(uint *best, __local const uint *pending, int count)
{
#if MERGES
    for (int start = 0; start < count; start += 8) {
        uint eight[8];
        #pragma unroll
        for (int k = 0; k < 8; ++k)
            eight[k] = start + k < count ? pending[(start + k) * GROUP_SIZE] : NO_MATCH;
        merge_eight(best, eight);
    }
#else
    for (int k = 0; k < count; ++k)
        insert_key(best, pending[k * GROUP_SIZE]);
#endif
}

// `waiting` is how many keys are pending, times PENDING_BYTES: multiplying it for each key would take longer than all else here.
#define PENDING_BYTES ((int)sizeof(uint) * GROUP_SIZE)

static inline void offer_key(const uint *best, __local uint *pending, int *waiting, uint key)
{
    if (key < best[NEIGHBOURS - 1]) {
        *(__local uint *)((__local char *)pending + *waiting) = key;
        *waiting += PENDING_BYTES;
    }
}

// Number of candidates after which pending keys are inserted next, when `seen` have been offered so far.
static inline int next_insertion(int seen)
{
    return seen + max(seen / (NEIGHBOURS < 32 ? 6 : 12), 1);
}

// Call this after every chunk of `offered` candidates. `seen` counts them; `next`, 1 at first, says when keys are inserted next.
static inline void keep_pending(uint *best, __local uint *pending, int *waiting, int offered, int *seen, int *next)
{
    *seen += offered;
    const bool due = *seen >= *next;
    if (due || *waiting > (PENDING - CHUNK) * PENDING_BYTES) {
        insert_pending(best, pending, *waiting / PENDING_BYTES);
        *waiting = 0;
    }
    if (due)
        *next = next_insertion(*seen);
}

// Inserts the keys that are still pending and writes the list: one value for each rank, `columns` values apart.
static inline void store_matches(uint *best, __local const uint *pending, int waiting, __global uint *out, int columns)
{
    insert_pending(best, pending, waiting / PENDING_BYTES);
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        out[k * columns] = best[k];
}
