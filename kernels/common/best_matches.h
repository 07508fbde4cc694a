// Keeps the NEIGHBOURS smallest keys a work-item is offered, sorted, in registers.
//
// Inserting at once would make a whole warp run the insertion whenever one of its items has a good candidate, which is
// nearly always. Good candidates are put aside in local memory instead, and inserted together when enough
// candidates have been seen: the chance that one is good falls as 1 / seen, so the pauses grow with it.
//
// Needs: NEIGHBOURS, GROUP_SIZE (work-items of the group), CHUNK (most offers between two calls of keep_pending).

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

// Joins eight pending keys to a list of 8, 16 or 32 at once: Batcher's network for 8, then a bitonic merge. For 16, 110 minima and
// maxima instead of 32 for each key.
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

// Candidates after which pending keys are inserted again, once `seen` have been offered.
static inline int next_insertion(int seen)
{
    return seen + max(seen / 6, 1);
}

// To be called after every chunk of offers.
static inline void keep_pending(uint *best, __local uint *pending, int *count, bool due)
{
    if (due || *count > PENDING - CHUNK) {
        insert_pending(best, pending, *count);
        *count = 0;
    }
}

// Inserts what is still pending and writes the list, one row of `columns` values a rank.
static inline void store_matches(uint *best, __local const uint *pending, int count, __global uint *out, int columns)
{
    insert_pending(best, pending, count);
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k)
        out[k * columns] = best[k];
}
