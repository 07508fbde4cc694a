// Sorted lists of the NEIGHBOURS smallest keys: inserting one key, or eight together. A KEY is a number, or a vector with a list
// in each lane.
//
// Needs: KEY, NEIGHBOURS.

static inline void insert_key(KEY *best, KEY key)
{
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k) {
        const KEY kept = min(best[k], key);
        key = max(best[k], key);
        best[k] = kept;
    }
}

static inline void order_keys(KEY *keys, int a, int b)
{
    const KEY low = min(keys[a], keys[b]);
    keys[b] = max(keys[a], keys[b]);
    keys[a] = low;
}

// Merges eight pending keys into a list of 8, 16 or 32: Batcher's sorting network for the eight, then a bitonic merge. For a
// list of 16 this takes 110 minima and maxima; inserting one key at a time takes 32 for each.
#define MERGES (NEIGHBOURS == 8 || NEIGHBOURS == 16 || NEIGHBOURS == 32)

static inline void merge_eight(KEY *best, KEY *eight)
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
