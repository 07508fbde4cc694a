// A match is one 32-bit key: the bits of its float distance with the lowest INDEX_BITS bits replaced by its place in
// the table of offsets. Non-negative floats order like unsigned integers, so one comparison orders by distance
// and settles ties by the place in the table, nearest first; the result never depends on the order of the search.

// The distance read back is the middle of what was cut off: within 2^(INDEX_BITS - 24) of the true one, 3e-5 for a
// window of 21 x 21.

#define INDEX_MASK ((1u << INDEX_BITS) - 1u)
#define NO_MATCH 0xffffffffu

#include "common/far.h"
#define FAR_KEY 0x70000000u

static inline float key_distance(uint key)
{
    const uint cut = key & ~INDEX_MASK;
    return as_float(cut == 0u ? 0u : cut | ((INDEX_MASK + 1u) >> 1));
}
