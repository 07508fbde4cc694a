// Keeps the NEIGHBOURS smallest keys a work-item is offered, sorted, in registers.
//
// Inserting at once would make a whole warp run the insertion whenever one of its items has a good candidate, which is
// nearly always. Good candidates are put aside in local memory instead, and inserted together when enough
// candidates have been seen: the chance that one is good falls as 1 / seen, so the pauses grow with it.
//
// Needs: NEIGHBOURS, GROUP_SIZE (work-items of the group), CHUNK (most offers between two calls of keep_pending).

#define PENDING (CHUNK + 8)

inline void insert_key(uint *best, uint key)
{
    #pragma unroll
    for (int k = 0; k < NEIGHBOURS; ++k) {
        const uint kept = min(best[k], key);
        key = max(best[k], key);
        best[k] = kept;
    }
}

inline void offer_key(const uint *best, __local uint *pending, int *count, uint key)
{
    if (key < best[NEIGHBOURS - 1]) {
        pending[*count * GROUP_SIZE] = key;
        ++*count;
    }
}

// To be called after every chunk of offers; `seen` counts candidates, `next` is when the next insertion is due.
inline void keep_pending(uint *best, __local uint *pending, int *count, int seen, int *next)
{
    const bool due = seen >= *next;
    if (due)
        *next = seen + max(seen / 4, 1);
    if (due || *count > PENDING - CHUNK) {
        for (int k = 0; k < *count; ++k)
            insert_key(best, pending[k * GROUP_SIZE]);
        *count = 0;
    }
}
