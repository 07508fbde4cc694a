// A match is one 32-bit key: the bits of its float distance with the lowest INDEX_BITS bits replaced by its place in
// the table of offsets. Non-negative floats order like unsigned integers, so one comparison orders by distance
// and settles ties by the place in the table, nearest first; the result never depends on the order of the search.

#define INDEX_MASK ((1u << INDEX_BITS) - 1u)
#define NO_MATCH 0xffffffffu

// Pixels outside the image hold FAR: a patch that reaches them has a distance above FAR_KEY and is no match. Finite,
// so that no NaN can arise; its square still fits a float.
#define FAR 1.0e17f
#define FAR_KEY 0x70000000u
