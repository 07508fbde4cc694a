// The best candidates of a predictive search: distance and place in one number, so that ties are settled by the place.
//
// Needs: NEXT, KEPT; `bias`, what is taken off the distance of a patch that has not moved.

#include "common/match_key.h"
#include "common/place_code.h"

typedef ulong CANDIDATE;
#define NO_CANDIDATE 0xffffffffffffffffUL

// A patch that reaches out of the image is none; one that has not moved may be favoured by `still`.
static inline CANDIDATE candidate(float distance, int dt, int dy, int dx, float still)
{
    const bool unmoved = dt != 0 && dy == 0 && dx == 0;
    const float favoured = unmoved ? fmax(distance - still, 0.0f) : distance;
    const uint key = as_uint(favoured);
    return key < FAR_KEY ? (ulong)key << 32 | place_code(dt, dy, dx) : NO_CANDIDATE;
}

static inline uint candidate_place(CANDIDATE one)
{
    return (uint)one;
}

static inline bool is_candidate(CANDIDATE one)
{
    return one != NO_CANDIDATE;
}

// The candidate, if it is no further than the limit; the reference itself always is.
static inline CANDIDATE near_enough(CANDIDATE one, float limit)
{
    const bool near = candidate_place(one) == 0u || as_float((uint)(one >> 32)) <= limit;
    return is_candidate(one) && near ? one : NO_CANDIDATE;
}

static inline void insert_candidate(CANDIDATE *best, int count, CANDIDATE one)
{
    #pragma unroll
    for (int k = 0; k < count; ++k) {
        const CANDIDATE kept = min(best[k], one);
        one = max(best[k], one);
        best[k] = kept;
    }
}

// Whether a displacement lies in the window around one that was searched before.
static inline bool within(CANDIDATE centre, int dy, int dx)
{
    const uint place = candidate_place(centre);
    return is_candidate(centre) && abs(dy - place_y(place)) <= NEXT / 2 && abs(dx - place_x(place)) <= NEXT / 2;
}

// Whether it was searched around an earlier one of the centres.
static inline bool repeated(const CANDIDATE *centres, int window, int dy, int dx)
{
    bool before = false;
    #pragma unroll
    for (int i = 0; i < KEPT - 1; ++i)
        before = before || (i < window && within(centres[i], dy, dx));
    return before;
}

// Offers the sums of a strip, of displacements (top + k * stride, left + d * stride), where `wanted`, to a list of `count`.
#define OFFER_STRIP(best, count, sums, height, width, stride, dt, top, left, wanted)                          \
    _Pragma("unroll") for (int k = 0; k < (height); ++k) {                                                    \
        _Pragma("unroll") for (int d = 0; d < (width); ++d) {                                                 \
            const CANDIDATE one = candidate(sums[k][d], dt, (top) + k * (stride), (left) + d * (stride), bias); \
            insert_candidate(best, count, (wanted) ? one : NO_CANDIDATE);                                     \
        }                                                                                                     \
    }
