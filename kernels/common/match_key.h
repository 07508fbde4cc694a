// A match is one 32-bit key: the bits of its distance as a float, with the lowest INDEX_BITS bits replaced by its index in the
// table of offsets. Non-negative floats sort like unsigned integers, so one comparison sorts by distance and breaks ties by
// index, nearest offset first. The result does not depend on the order of the search.

// The distance of a key is the middle of the interval that its remaining bits leave open. Its relative error is at most
// 2^(INDEX_BITS - 24): 3e-5 for a window of 21 x 21.

#define INDEX_MASK ((1u << INDEX_BITS) - 1u)
#define NO_MATCH 0xffffffffu

#include "common/far.h"
#define FAR_KEY 0x70000000u

static inline float key_distance(uint key)
{
    const uint cut = key & ~INDEX_MASK;
    return as_float(cut == 0u ? 0u : cut | ((INDEX_MASK + 1u) >> 1));
}
