// Keeps the NEIGHBOURS smallest keys that a work-item has seen, sorted, in registers.
//
// Inserting each good candidate at once would be slow: a whole warp runs the insertion when one of its items has a good
// candidate, which is nearly always. Instead, good candidates wait in local memory and are inserted together after a number
// of candidates. A candidate is good with a probability of about 1 / seen, so the intervals grow with `seen`.
//
// Needs: NEIGHBOURS, GROUP_SIZE (work-items of the group), CHUNK (most candidates between two calls of keep_pending).

#define PENDING (CHUNK + 8)

static inline void insert_key(uint *best, uint key)
{
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k) {
        const uint kept = min(best[k], key);
        key = max(best[k], key);
        best[k] = kept;
    }
}

static inline void order_keys(uint *keys, int a, int b)
{
    const uint low = min(keys[a], keys[b]);
    keys[b] = max(keys[a], keys[b]);
    keys[a] = low;
}

// Merges eight pending keys into a list of 8, 16 or 32: Batcher's sorting network for the eight, then a bitonic merge. For a
// list of 16 this takes 110 minima and maxima; inserting one key at a time takes 32 for each.
#define MERGES (NEIGHBOURS == 8 || NEIGHBOURS == 16 || NEIGHBOURS == 32)

static inline void merge_eight(uint *best, uint *eight)
{
#if MERGES
    order_keys(eight, 0, 1); order_keys(eight, 2, 3); order_keys(eight, 4, 5); order_keys(eight, 6, 7);
    order_keys(eight, 0, 2); order_keys(eight, 1, 3); order_keys(eight, 4, 6); order_keys(eight, 5, 7);
    order_keys(eight, 1, 2); order_keys(eight, 5, 6);
    order_keys(eight, 0, 4); order_keys(eight, 1, 5); order_keys(eight, 2, 6); order_keys(eight, 3, 7);
    order_keys(eight, 2, 4); order_keys(eight, 3, 5);
    order_keys(eight, 1, 2); order_keys(eight, 3, 4); order_keys(eight, 5, 6);
    #pragma unroll
    for (int k = 0; k < 8; ++k)
        best[NEIGHBOURS - 1 - k] = min(best[NEIGHBOURS - 1 - k], eight[k]);
    #pragma unroll
    for (int stride = NEIGHBOURS / 2; stride > 0; stride /= 2) {
        #pragma unroll
        for (int k = 0; k < NEIGHBOURS; ++k)
            if (!(k & stride))
                order_keys(best, k, k + stride);
    }
#endif
}

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

static inline void offer_key(const uint *best, __local uint *pending, int *count, uint key)
{
    if (key < best[NEIGHBOURS - 1]) {
        pending[*count * GROUP_SIZE] = key;
        ++*count;
    }
}

// Number of candidates after which pending keys are inserted next, when `seen` have been offered so far.
static inline int next_insertion(int seen)
{
    return seen + max(seen / 6, 1);
}

// Call this after every chunk of candidates.
static inline void keep_pending(uint *best, __local uint *pending, int *count, bool due)
{
    if (due || *count > PENDING - CHUNK) {
        insert_pending(best, pending, *count);
        *count = 0;
    }
}

// Inserts the keys that are still pending and writes the list: one value for each rank, `columns` values apart.
static inline void store_matches(uint *best, __local const uint *pending, int count, __global uint *out, int columns)
{
    insert_pending(best, pending, count);
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        out[k * columns] = best[k];
}
